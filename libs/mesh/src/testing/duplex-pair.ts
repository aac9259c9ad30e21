import { Duplex } from 'node:stream';

/** Two streams, each of which reads what the other writes, with back-pressure. */
export function duplexPair(): [Duplex, Duplex] {
  const left = new Side();
  const right = new Side();
  left.other = right;
  right.other = left;
  return [left, right];
}

class Side extends Duplex {
  other: Side | undefined;
  private resume_: (() => void) | undefined;

  constructor() {
    super({ allowHalfOpen: true });
  }

  override _read(): void {
    const resume = this.resume_;
    this.resume_ = undefined;
    resume?.();
  }

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    const { other } = this;
    if (other === undefined || other.destroyed) return done();
    if (other.push(chunk)) done();
    else other.resume_ = done;
  }

  override _final(done: () => void): void {
    this.other?.push(null);
    done();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    const { other } = this;
    if (other !== undefined && !other.destroyed) setImmediate(() => other.destroy());
    done(error);
  }
}
