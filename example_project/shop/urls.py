"""URLs of the shop."""

from django.urls import path

from example_project.shop import views

app_name = "shop"

urlpatterns = [
    path("", views.orders, name="orders"),
    path("orders/random", views.place_random, name="place_random"),
    path("orders/<slug:reference>", views.order, name="order"),
]
