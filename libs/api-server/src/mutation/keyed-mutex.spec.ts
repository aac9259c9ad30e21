import { errorKindOf } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import { KeyedMutex } from './keyed-mutex.js';

/** Work that ends when the test says so. */
function openWork(log: string[], name: string) {
  let end = (): void => undefined;
  const ended = new Promise<void>((resolve) => (end = resolve));
  const createWork = async (): Promise<string> => {
    log.push(`${name} begins`);
    await ended;
    log.push(`${name} ends`);
    return name;
  };
  return { work: createWork, end };
}

describe('KeyedMutex', () => {
  it('runs the work of one object one at a time, in the order of the calls, and work of other objects concurrently', async () => {
    const mutex = new KeyedMutex();
    const log: string[] = [];
    const [a, b, other] = ['a', 'b', 'other'].map((name) => openWork(log, name));
    const calls = [
      mutex.run('web', a!.work),
      mutex.run('web', b!.work),
      mutex.run('job', other!.work),
    ];
    await settle();
    expect(log).toEqual(['a begins', 'other begins']);
    for (const { end } of [b!, a!, other!]) end();
    expect(await Promise.all(calls)).toEqual(['a', 'b', 'other']);
    expect(log.filter((line) => !line.startsWith('other'))).toEqual([
      'a begins',
      'a ends',
      'b begins',
      'b ends',
    ]);
  });

  it('continues after work that failed, and forgets an object without work', async () => {
    const mutex = new KeyedMutex();
    const failing = mutex.run('web', () => Promise.reject(new Error('refused')));
    const next = mutex.run('web', async () => 'done');
    await expect(failing).rejects.toThrow('refused');
    expect(await next).toBe('done');
    await settle();
    expect(mutex.size).toBe(0);
  });

  it('refuses a call when too many wait for the same object', async () => {
    const mutex = new KeyedMutex(2);
    const first = openWork([], 'first');
    const calls = [mutex.run('web', first.work), mutex.run('web', async () => 'second')];
    const third = await mutex.run('web', async () => 'third').catch((reason: unknown) => reason);
    expect([errorKindOf(third), String(third)]).toEqual([
      'exhausted',
      'CloudlessError: 2 changes of web wait already; try again later',
    ]);
    first.end();
    expect(await Promise.all(calls)).toEqual(['first', 'second']);
  });
});
