import { ManualClock } from '@cloudless/base/testing';
import { CoordinatorContact } from './coordinator-contact.js';

describe('CoordinatorContact', () => {
  let clock: ManualClock;
  let contact: CoordinatorContact;
  beforeEach(() => {
    clock = new ManualClock();
    contact = new CoordinatorContact(clock);
  });

  it('returns 0 as remaining time before the first contact', () => {
    expect(contact.remainingMs(10_000)).toBe(0);
  });

  it('counts the remaining time from the send time of the newest answered ping, down to 0', async () => {
    await clock.advance(5_000);
    contact.confirm(4_000);
    expect(contact.remainingMs(10_000)).toBe(9_000);
    await clock.advance(9_500);
    expect(contact.remainingMs(10_000)).toBe(0);
  });

  it('ignores the answer to an older ping, and notifies listeners only about newer contacts', async () => {
    let calls = 0;
    const unsubscribe = contact.subscribe(() => (calls += 1));
    await clock.advance(5_000);
    contact.confirm(4_000);
    contact.confirm(3_000);
    contact.confirm(4_000);
    expect([contact.remainingMs(10_000), calls]).toEqual([9_000, 1]);
    contact.confirm(5_000);
    expect([contact.remainingMs(10_000), calls]).toEqual([10_000, 2]);
    unsubscribe();
    contact.confirm(6_000);
    expect(calls).toBe(2);
  });
});
