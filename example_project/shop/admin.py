"""The shop in the admin, read-only: what is there was made by customers and jobs."""

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.http import HttpRequest

from example_project.shop.models import (
    Invoice,
    Order,
    OrderItem,
    Payment,
    Receipt,
    Stock,
    StockAlert,
)

if TYPE_CHECKING:
    _OrderAdmin = admin.ModelAdmin[Order]
    _PaymentAdmin = admin.ModelAdmin[Payment]
    _ReceiptAdmin = admin.ModelAdmin[Receipt]
    _InvoiceAdmin = admin.ModelAdmin[Invoice]
    _StockAdmin = admin.ModelAdmin[Stock]
    _StockAlertAdmin = admin.ModelAdmin[StockAlert]
    _ItemInline = admin.TabularInline[OrderItem, Order]
    _PaymentInline = admin.TabularInline[Payment, Order]
else:
    _OrderAdmin = _PaymentAdmin = _ReceiptAdmin = _InvoiceAdmin = admin.ModelAdmin
    _StockAdmin = _StockAlertAdmin = admin.ModelAdmin
    _ItemInline = _PaymentInline = admin.TabularInline


class ReadOnly:
    """Look, do not touch."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Orders come from customers."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """What was ordered stays as it was ordered."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Books are kept."""
        return False


class ItemInline(ReadOnly, _ItemInline):
    """The lines of an order."""

    model = OrderItem


class PaymentInline(ReadOnly, _PaymentInline):
    """The payments for an order."""

    model = Payment


@admin.register(Order)
class OrderAdmin(ReadOnly, _OrderAdmin):
    """Orders, newest first."""

    list_display = ("reference", "customer", "total", "status", "source", "placed_at")
    list_filter = ("status", "source", "card")
    search_fields = ("reference", "customer", "email")
    date_hierarchy = "placed_at"
    inlines = (ItemInline, PaymentInline)


@admin.register(Payment)
class PaymentAdmin(ReadOnly, _PaymentAdmin):
    """Payments, with the attempt that succeeded."""

    list_display = ("order", "amount", "attempt", "created_at")
    list_select_related = ("order",)
    search_fields = ("order__reference",)


@admin.register(Receipt)
class ReceiptAdmin(ReadOnly, _ReceiptAdmin):
    """E-mails that went out."""

    list_display = ("order", "message_id", "written", "written_at")
    list_select_related = ("order",)
    search_fields = ("order__reference",)


@admin.register(Invoice)
class InvoiceAdmin(ReadOnly, _InvoiceAdmin):
    """Invoices that were drawn."""

    list_display = ("order", "file", "written", "written_at")
    list_select_related = ("order",)
    search_fields = ("order__reference",)


@admin.register(Stock)
class StockAdmin(ReadOnly, _StockAdmin):
    """What is in the warehouse."""

    list_display = ("product", "quantity")
    search_fields = ("product",)


@admin.register(StockAlert)
class StockAlertAdmin(ReadOnly, _StockAlertAdmin):
    """Who waits for which product."""

    list_display = ("product", "email", "arrived")
    list_filter = ("arrived",)
    search_fields = ("product", "email")
