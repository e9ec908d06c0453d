"""The shop: orders, payments, receipts and invoices."""
