import { errorKindOf } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import { KeyedMutex } from './keyed-mutex.js';

/** Creates work that logs its begin and end, and ends when the test calls `end`. */
function createWork(log: string[], name: string) {
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

describe('KeyedMutex', () => {
  it('runs the changes of one object in the order of the calls, and those of other objects concurrently', async () => {
    const mutex = new KeyedMutex();
    const log: string[] = [];
    const [a, b, other] = ['a', 'b', 'other'].map((name) => createWork(log, name));
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

  it('runs the next change after a failed one, and removes an object without changes', async () => {
    const mutex = new KeyedMutex();
    const failing = mutex.run('web', () => Promise.reject(new Error('refused')));
    const next = mutex.run('web', async () => 'done');
    await expect(failing).rejects.toThrow('refused');
    expect(await next).toBe('done');
    await settle();
    expect(mutex.size).toBe(0);
  });

  it('refuses a change when the maximum number of changes of the object run or wait', async () => {
    const mutex = new KeyedMutex(2);
    const first = createWork([], 'first');
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
