/** One at a time for each key, in order. */
export class Turns {
  private readonly last = new Map<string, Promise<void>>();

  /** Resolves when it is the caller's turn, with the function that ends it. */
  async take(key: string): Promise<() => void> {
    const before = this.last.get(key);
    let release = (): void => undefined;
    const turn = new Promise<void>((resolve) => (release = resolve));
    const last = (before ?? Promise.resolve()).then(() => turn);
    this.last.set(key, last);
    await before;
    return () => {
      release();
      if (this.last.get(key) === last) this.last.delete(key);
    };
  }
}
