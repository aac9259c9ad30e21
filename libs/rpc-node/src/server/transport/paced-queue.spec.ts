import { PacedQueue } from './paced-queue.js';

describe('PacedQueue', () => {
  let iterations: (() => void)[] = [];
  let handled: number[] = [];
  const runIteration = (): void => iterations.shift()?.();
  const createQueue = (perIteration: number) =>
    new PacedQueue<number>(
      perIteration,
      (item) => handled.push(item),
      (action) => iterations.push(action),
    );
  beforeEach(() => {
    iterations = [];
    handled = [];
  });

  it('handles as many items at once as it may in one iteration, and the others later in order', () => {
    const queue = createQueue(2);
    for (const item of [1, 2, 3, 4, 5]) queue.add(item);
    expect(handled).toEqual([1, 2]);
    runIteration();
    expect(handled).toEqual([1, 2, 3, 4]);
    runIteration();
    expect(handled).toEqual([1, 2, 3, 4, 5]);
  });

  it('counts the waiting items that it has handled in an iteration against new ones', () => {
    const queue = createQueue(2);
    for (const item of [1, 2, 3]) queue.add(item);
    runIteration();
    queue.add(4);
    queue.add(5);
    expect(handled).toEqual([1, 2, 3, 4]);
    runIteration();
    expect(handled).toEqual([1, 2, 3, 4, 5]);
  });

  it('waits for no iteration once nothing was handled in one', () => {
    const queue = createQueue(2);
    queue.add(1);
    runIteration();
    expect(iterations).toHaveLength(0);
    queue.add(2);
    expect(handled).toEqual([1, 2]);
  });
});
