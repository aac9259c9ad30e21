import fc from 'fast-check';
import { SessionTable } from './session-table.js';

describe('SessionTable', () => {
  /** Adds a session as a listener does, and returns the session that made room. */
  const add = (table: SessionTable<string>, address: string, port: number): string | undefined => {
    const key = `${address} ${port}`;
    const replaced = table.findReplaced(address);
    if (replaced !== undefined) table.delete(replaced);
    table.add(key, address, key);
    return replaced;
  };

  it('replaces the session that was used least recently', () => {
    const table = new SessionTable<string>(3);
    for (const address of ['a', 'b', 'c']) add(table, address, 1);
    expect(table.use('a 1')).toBe('a 1');
    expect(add(table, 'd', 1)).toBe('b 1');
  });

  it('replaces sessions without an answer first', () => {
    const table = new SessionTable<string>(3);
    add(table, 'a', 1);
    table.noteAnswer('a 1');
    const replaced = ['b', 'c', 'd', 'e', 'f'].map((address) => add(table, address, 1));
    expect(replaced).toEqual([undefined, undefined, 'b 1', 'c 1', 'd 1']);
    expect(table.use('a 1')).toBe('a 1');
  });

  it('makes a client address with more than its share replace its own sessions', () => {
    const table = new SessionTable<string>(20);
    const addAnswered = (address: string, port: number): string | undefined => {
      const replaced = add(table, address, port);
      table.noteAnswer(`${address} ${port}`);
      return replaced;
    };
    for (let port = 0; port < 20; port += 1) addAnswered(port < 18 ? `one-${port}` : 'many', port);
    expect([addAnswered('many', 20), addAnswered('many', 21)]).toEqual(['many 18', 'many 19']);
    expect(addAnswered('new', 1)).toBe('one-0 0');
  });

  it('never holds more than its bound, nor an answered session less than a forged one', () => {
    const step = fc.record({ address: fc.constantFrom('a', 'b', 'c', 'd'), port: fc.nat(5) });
    const steps = fc.array(fc.tuple(step, fc.constantFrom('send', 'answer', 'end')));
    fc.assert(
      fc.property(steps, fc.integer({ min: 1, max: 6 }), (events, max) => {
        const table = new SessionTable<string>(max);
        const answered = new Set<string>();
        for (const [{ address, port }, kind] of events) {
          const key = `${address} ${port}`;
          if (kind === 'end') table.delete(key);
          if (kind === 'answer' && table.use(key) !== undefined) {
            table.noteAnswer(key);
            answered.add(key);
          }
          if (kind === 'send' && table.use(key) === undefined) {
            const before = table.sessions();
            const replaced = add(table, address, port);
            const own = before.filter((each) => each.startsWith(address));
            const others = own.length >= Math.max(1, max / 10) ? own : before;
            if (replaced !== undefined && answered.has(replaced))
              expect(others.every((each) => answered.has(each))).toBe(true);
            if (replaced !== undefined) answered.delete(replaced);
          }
          if (kind === 'end') answered.delete(key);
          expect(table.size).toBeLessThanOrEqual(max);
        }
      }),
    );
  });
});
