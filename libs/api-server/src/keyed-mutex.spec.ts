import { errorKindOf } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import { Turns } from './turns.js';

/** Work that ends when the test says so. */
function openWork(log: string[], name: string) {
  let end = (): void => undefined;
  const ended = new Promise<void>((resolve) => (end = resolve));
  const work = async (): Promise<string> => {
    log.push(`${name} begins`);
    await ended;
    log.push(`${name} ends`);
    return name;
  };
  return { work, end };
}

describe('Turns', () => {
  it('runs the work of one object one after the other, in the order of the calls, and that of others beside it', async () => {
    const turns = new Turns();
    const log: string[] = [];
    const [a, b, other] = ['a', 'b', 'other'].map((name) => openWork(log, name));
    const calls = [turns.run('web', a!.work), turns.run('web', b!.work), turns.run('job', other!.work)];
    await settle();
    expect(log).toEqual(['a begins', 'other begins']);
    for (const { end } of [b!, a!, other!]) end();
    expect(await Promise.all(calls)).toEqual(['a', 'b', 'other']);
    expect(log.filter((line) => !line.startsWith('other'))).toEqual(['a begins', 'a ends', 'b begins', 'b ends']);
  });

  it('goes on after work that failed, and forgets an object that nobody changes', async () => {
    const turns = new Turns();
    const failing = turns.run('web', () => Promise.reject(new Error('refused')));
    const next = turns.run('web', async () => 'done');
    await expect(failing).rejects.toThrow('refused');
    expect(await next).toBe('done');
    await settle();
    expect(turns.size).toBe(0);
  });

  it('refuses more callers of one object than it has room for', async () => {
    const turns = new Turns(2);
    const first = openWork([], 'first');
    const calls = [turns.run('web', first.work), turns.run('web', async () => 'second')];
    const third = await turns.run('web', async () => 'third').catch((reason: unknown) => reason);
    expect([errorKindOf(third), String(third)]).toEqual([
      'exhausted',
      'CloudlessError: 2 changes of web wait already; try again later',
    ]);
    first.end();
    expect(await Promise.all(calls)).toEqual(['first', 'second']);
  });
});
