"""Orders and what the jobs make of them."""

from decimal import Decimal

from django.db import models


class Status(models.TextChoices):
    """How far an order is."""

    PLACED = "placed", "Placed"
    RESERVED = "reserved", "Reserved"
    PAID = "paid", "Paid"
    CANCELLED = "cancelled", "Cancelled"


class Source(models.TextChoices):
    """Where an order came from. The demonstration wipes only what it placed itself."""

    DEMO = "demo", "Demonstration"
    SITE = "site", "Site"


class Order(models.Model):
    """An order. It remembers its workflow, written in the transaction that enqueued it."""

    reference = models.CharField(max_length=32, unique=True)
    customer = models.CharField(max_length=200)
    email = models.EmailField()
    card = models.CharField(max_length=32)
    total = models.DecimalField(max_digits=10, decimal_places=2)
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.PLACED)
    source = models.CharField(max_length=16, choices=Source.choices, default=Source.DEMO)
    placed_at = models.DateTimeField()
    workflow = models.UUIDField(null=True, editable=False)

    class Meta:
        ordering = ["-placed_at", "-id"]
        indexes = [models.Index(fields=["-placed_at", "-id"], name="shop_order_newest")]

    def __str__(self) -> str:
        return self.reference

    def set_status(self, status: Status) -> None:
        """Change the status."""
        self.status = status
        self.save(update_fields=["status"])


class Stock(models.Model):
    """How many of a product are in the warehouse and are not reserved for an order."""

    product = models.CharField(max_length=200, unique=True)
    quantity = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["product"]
        verbose_name_plural = "stock"

    def __str__(self) -> str:
        return f"{self.quantity} x {self.product}"


class StockAlert(models.Model):
    """A customer who wants an e-mail when a product arrives. `arrived`: the task is enqueued."""

    product = models.CharField(max_length=200)
    email = models.EmailField()
    arrived = models.BooleanField(default=False)

    class Meta:
        ordering = ["product", "email"]
        constraints = [
            models.UniqueConstraint(fields=["product", "email"], name="shop_stock_alert_once")
        ]

    def __str__(self) -> str:
        return f"{self.email}: {self.product}"


class Commission(models.Model):
    """A piece that is made for one customer, as the job of many steps reserves it."""

    reference = models.CharField(max_length=32)
    charge = models.CharField(max_length=32)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return self.reference


class OrderItem(models.Model):
    """One line of an order; the price is the one the customer saw."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="items")
    product = models.CharField(max_length=200)
    quantity = models.PositiveSmallIntegerField()
    unit_price = models.DecimalField(max_digits=8, decimal_places=2)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.quantity} x {self.product}"

    @property
    def amount(self) -> Decimal:
        """Quantity times unit price."""
        return self.quantity * self.unit_price


class Payment(models.Model):
    """Money taken for an order.

    There is no unique constraint on purpose. It would hide a charge that ran twice; here nothing
    but the job system (`atomic=True`) stands between a customer and a second payment, and the
    demonstration counts.
    """

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="payments")
    amount = models.DecimalField(max_digits=10, decimal_places=2)
    attempt = models.PositiveIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.amount} for {self.order_id}"


class Document(models.Model):
    """A file that a job writes. Writing it again replaces it; `written` counts the times."""

    written = models.PositiveIntegerField(default=1)
    written_at = models.DateTimeField(auto_now=True)

    class Meta:
        abstract = True


class Receipt(Document):
    """The e-mail that says thank you."""

    order = models.OneToOneField(Order, on_delete=models.CASCADE, related_name="receipt")
    message_id = models.CharField(max_length=200)

    def __str__(self) -> str:
        return self.message_id


class Invoice(Document):
    """The invoice as a PDF under the media root."""

    order = models.OneToOneField(Order, on_delete=models.CASCADE, related_name="invoice")
    file = models.FileField(upload_to="invoices")

    def __str__(self) -> str:
        return self.file.name or "no file"
