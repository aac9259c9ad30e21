import { runAtOnce, runInSlices } from './index.js';

/** Notes when each of three slices runs. */
function* runThree(notes: string[]): Generator<void, string> {
  notes.push('first');
  yield;
  notes.push('second');
  yield;
  notes.push('third');
  return 'done';
}

describe('runAtOnce', () => {
  it('runs all slices, and returns the result', () => {
    const notes: string[] = [];
    expect(runAtOnce(runThree(notes))).toBe('done');
    expect(notes).toEqual(['first', 'second', 'third']);
  });
});

describe('runInSlices', () => {
  it('runs the first slice at once, and pauses before each further slice', async () => {
    const notes: string[] = [];
    const pause = (): Promise<void> => {
      notes.push('pause');
      return Promise.resolve();
    };
    const running = runInSlices(runThree(notes), pause);
    expect(notes).toEqual(['first', 'pause']);
    expect(await running).toBe('done');
    expect(notes).toEqual(['first', 'pause', 'second', 'pause', 'third']);
  });

  it('ends with the error of a pause, without another slice', async () => {
    const notes: string[] = [];
    const stopped = new Error('stopped');
    const running = runInSlices(runThree(notes), () => Promise.reject(stopped));
    await expect(running).rejects.toBe(stopped);
    expect(notes).toEqual(['first']);
  });
});
