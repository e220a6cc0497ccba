"""A trip that fails half-way: what was booked is cancelled, last first.

python examples/saga_trip.py
"""

import holdfast as hf


class NoRoom(Exception):
    """The hotel is full."""


@hf.effect
async def book_flight(city: str) -> str:
    print(f"flight to {city} booked")
    return f"flight-{city}"


@book_flight.undo  # gets the result first, or None if it is in doubt whether there is one
async def cancel_flight(flight: str | None, city: str) -> None:
    print(f"{flight or 'whatever was booked'} cancelled")


@hf.effect(raises=NoRoom)  # this exception is proof that nothing was booked
async def book_hotel(city: str) -> str:
    raise NoRoom(f"no room in {city}")


@hf.agent
async def trip(city: str) -> str:
    try:
        async with hf.saga():
            await book_flight(city)
            await book_hotel(city)
    except NoRoom as error:
        return f"stayed at home: {error}"
    return f"off to {city}"


if __name__ == "__main__":
    print(hf.run(trip("Rome"), id="trip-rome"))
