/**
 * A read that callers share: each call gets the result of a read that began after the call; calls
 * during a read share the next one.
 */
export class SharedRead<Result> {
  private inFlight: Promise<unknown> | undefined;
  private next: Promise<Result> | undefined;

  constructor(private readonly readOnce: () => Promise<Result>) {}

  /** @throws The error of the read. */
  read(): Promise<Result> {
    if (this.inFlight === undefined) return this.begin();
    const begin = (): Promise<Result> => {
      this.next = undefined;
      return this.begin();
    };
    return (this.next ??= this.inFlight.then(begin, begin));
  }

  private begin(): Promise<Result> {
    const reading = this.readOnce();
    const settled: Promise<void> = reading.then(
      () => this.end(settled),
      () => this.end(settled),
    );
    this.inFlight = settled;
    return reading;
  }

  private end(settled: Promise<void>): void {
    if (this.inFlight === settled) this.inFlight = undefined;
  }
}
