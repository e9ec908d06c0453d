"""How an invoice looks.

Roboto comes from a package: the fonts of PDF itself know no Greek, Czech or Cyrillic. Embedding it
is nearly all of the work, so that an invoice without such letters has Helvetica, which is not
embedded.
"""

import logging
from collections.abc import Sequence
from importlib.resources import files

from fpdf import FPDF
from fpdf.enums import XPos, YPos

from example_project.shop.models import Order, OrderItem

_FONTS = files("font_roboto") / "files"
_INK, _GREY, _ACCENT, _TINT = (33, 37, 41), (108, 117, 125), (15, 98, 84), (240, 246, 244)
_COLUMNS = (92.0, 20.0, 29.0, 29.0)

# fontTools logs a warning for every table that it drops from a subset.
logging.getLogger("fontTools").setLevel(logging.ERROR)


def render(order: Order, items: Sequence[OrderItem]) -> bytes:
    """Draw the invoice of an order on one A4 page and return the PDF."""
    pdf = FPDF(format="A4")
    pdf.set_margin(20)
    pdf.set_title(f"Invoice {order.reference}")
    pdf.set_creation_date(order.placed_at)
    if _needs_roboto(order, items):
        pdf.add_font("Roboto", "", str(_FONTS / "Roboto-Regular.ttf"))
    pdf.add_page()
    _head(pdf, order)
    _addressee(pdf, order)
    _lines(pdf, items)
    _total(pdf, order)
    _foot(pdf, order)
    return bytes(pdf.output())


def _needs_roboto(order: Order, items: Sequence[OrderItem]) -> bool:
    text = "".join([order.customer, order.email, *(item.product for item in items)])
    try:
        text.encode("latin-1")
    except UnicodeEncodeError:
        return True
    return False


def _head(pdf: FPDF, order: Order) -> None:
    pdf.set_fill_color(*_ACCENT)
    pdf.rect(0, 0, 210, 34, style="F")
    pdf.set_text_color(255, 255, 255)
    pdf.set_xy(20, 11)
    _text(pdf, "The Corner Kitchen", size=20, bold=True, width=100)
    pdf.set_xy(120, 11)
    _text(pdf, "INVOICE", size=14, width=70, align="R")
    pdf.set_xy(120, 18)
    _text(pdf, order.reference, size=10, width=70, align="R")


def _addressee(pdf: FPDF, order: Order) -> None:
    pdf.set_xy(20, 50)
    for label, value in (
        ("Billed to", order.customer),
        ("E-mail", order.email),
        ("Date", order.placed_at.strftime("%d.%m.%Y")),
    ):
        pdf.set_text_color(*_GREY)
        _text(pdf, label, size=9, width=26, height=7)
        pdf.set_text_color(*_INK)
        _text(pdf, value, size=11, width=144, height=7, newline=True)


def _lines(pdf: FPDF, items: Sequence[OrderItem]) -> None:
    pdf.set_xy(20, 84)
    pdf.set_text_color(*_GREY)
    for text, width, align in zip(
        ("Product", "Quantity", "Price (EUR)", "Amount (EUR)"), _COLUMNS, "LRRR", strict=True
    ):
        _text(pdf, text, size=9, width=width, height=8, align=align)
    pdf.ln()
    pdf.set_text_color(*_INK)
    pdf.set_fill_color(*_TINT)
    for number, item in enumerate(items):
        cells = (item.product, str(item.quantity), str(item.unit_price), str(item.amount))
        for text, width, align in zip(cells, _COLUMNS, "LRRR", strict=True):
            _text(pdf, text, size=10, width=width, height=9, align=align, fill=number % 2 == 0)
        pdf.ln()


def _total(pdf: FPDF, order: Order) -> None:
    pdf.set_draw_color(*_ACCENT)
    pdf.line(20, pdf.get_y() + 1, 190, pdf.get_y() + 1)
    pdf.ln(3)
    _text(pdf, "Total", size=12, bold=True, width=sum(_COLUMNS[:3]), height=9, align="R")
    _text(pdf, f"{order.total} EUR", size=12, bold=True, width=_COLUMNS[3], height=9, align="R")


def _foot(pdf: FPDF, order: Order) -> None:
    pdf.set_auto_page_break(False)
    pdf.set_xy(20, 275)
    pdf.set_text_color(*_GREY)
    _text(
        pdf,
        f"A made-up invoice of a made-up shop. Please quote {order.reference}.",
        size=8,
        width=170,
        align="C",
    )


def _text(
    pdf: FPDF,
    text: str,
    *,
    size: int,
    width: float,
    height: float = 6,
    bold: bool = False,
    align: str = "L",
    fill: bool = False,
    newline: bool = False,
) -> None:
    # What is bold is ours and plain ASCII. One font to embed takes half the time of two.
    if bold:
        pdf.set_font("Helvetica", "B", size)
    else:
        pdf.set_font("Roboto" if "roboto" in pdf.fonts else "Helvetica", "", size)
    pdf.cell(
        width,
        height,
        text,
        align=align,
        fill=fill,
        new_x=XPos.LMARGIN if newline else XPos.RIGHT,
        new_y=YPos.NEXT if newline else YPos.TOP,
    )
