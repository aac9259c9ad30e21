import { ManualClock } from '@cloudless/base/testing';
import { RESEND_MS } from './agent-session.js';
import { OrderResends } from './order-resends.js';

class FakeSession {
  hasEnded = false;
  hasOpenOrders = false;
  resends = 0;
  looks = 0;
  resendOrders(): void {
    this.resends += 1;
  }
  trackAllOrders(): void {
    this.looks += 1;
  }
}

describe('OrderResends', () => {
  it('asks only sessions with open orders, each second until they have none', async () => {
    const clock = new ManualClock();
    const [idle, busy] = [new FakeSession(), new FakeSession()];
    const sessions = new Map(Object.entries({ idle, busy }));
    const resends = new OrderResends(clock, sessions, () => undefined);
    resends.start();
    busy.hasOpenOrders = true;
    for (const session of [idle, busy]) resends.note(session);
    await clock.advance(2 * RESEND_MS);
    busy.hasOpenOrders = false;
    await clock.advance(5 * RESEND_MS);
    expect([idle.resends, busy.resends]).toEqual([0, 3]);
    busy.hasOpenOrders = true;
    resends.note(busy);
    await clock.advance(RESEND_MS);
    expect(busy.resends).toBe(4);
    resends.close();
    await clock.advance(5 * RESEND_MS);
    expect(busy.resends).toBe(4);
  });

  it('asks no session that has ended', async () => {
    const clock = new ManualClock();
    const [first, second] = [new FakeSession(), new FakeSession()];
    const resends = new OrderResends(clock, new Map(), () => undefined);
    resends.start();
    for (const session of [first, second]) session.hasOpenOrders = true;
    resends.note(first);
    resends.remove(first);
    second.hasEnded = true;
    resends.note(second);
    await clock.advance(RESEND_MS);
    expect([first.resends, second.resends]).toEqual([0, 0]);
    resends.close();
  });

  it('lets every session look at all its replicas each minute, and sends what they find', async () => {
    const clock = new ManualClock();
    const session = new FakeSession();
    session.hasOpenOrders = true;
    const resends = new OrderResends(clock, new Map([['n', session]]), () => undefined);
    resends.start();
    await clock.advance(59 * RESEND_MS);
    expect([session.looks, session.resends]).toEqual([0, 0]);
    await clock.advance(RESEND_MS);
    expect([session.looks, session.resends]).toEqual([1, 1]);
    resends.close();
  });

  it('spreads the looks of many sessions over a minute, without those that have ended', async () => {
    const clock = new ManualClock();
    const all = Array.from({ length: 125 }, () => new FakeSession());
    const sessions = new Map(all.map((session, index) => [`n${index}`, session]));
    const resends = new OrderResends(clock, sessions, () => undefined);
    const countLooks = (): number => all.reduce((sum, { looks }) => sum + looks, 0);
    resends.start();
    await clock.advance(60 * RESEND_MS);
    expect(countLooks()).toBe(3);
    const [last] = all.slice(-1);
    if (last !== undefined) last.hasEnded = true;
    await clock.advance(59 * RESEND_MS);
    expect(all.slice(0, -1).every(({ looks }) => looks === 1)).toBe(true);
    expect(last?.looks).toBe(0);
    await clock.advance(60 * RESEND_MS);
    expect(all.slice(0, -1).every(({ looks }) => looks === 2)).toBe(true);
    resends.close();
  });
});
