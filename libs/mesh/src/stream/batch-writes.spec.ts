import { Duplex } from 'node:stream';
import { batchWrites } from './batch-writes.js';

/** A stream that notes how many pieces each system call would send. */
class CountingStream extends Duplex {
  readonly calls: number[] = [];

  override _read(): void {
    // Nothing to read.
  }

  override _write(_chunk: Buffer, _encoding: string, done: () => void): void {
    this.calls.push(1);
    done();
  }

  override _writev(chunks: readonly unknown[], done: () => void): void {
    this.calls.push(chunks.length);
    done();
  }
}

const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('batchWrites', () => {
  it('sends the pieces of one turn together, and those of the next turn again', async () => {
    const [one, two] = [new CountingStream(), new CountingStream()];
    for (const turn of [3, 2]) {
      for (let piece = 0; piece < turn; piece += 1)
        for (const stream of [one, two]) {
          batchWrites(stream);
          stream.write('piece');
        }
      await nextTurn();
    }
    expect([one.calls, two.calls]).toEqual([
      [3, 2],
      [3, 2],
    ]);
  });

  it('sends at once when the stream is ended in the same turn', async () => {
    const stream = new CountingStream();
    batchWrites(stream);
    stream.write('a');
    stream.write('b');
    stream.end();
    expect(stream.calls).toEqual([2]);
    await nextTurn();
    expect(stream.writableFinished).toBe(true);
  });

  it('does not fail for a stream that was destroyed in the same turn', async () => {
    const stream = new CountingStream();
    batchWrites(stream);
    stream.write('a');
    stream.destroy();
    await nextTurn();
    expect(stream.calls).toEqual([]);
  });
});
