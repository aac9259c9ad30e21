/** A mutex per key, granted in the order of the calls. */
export class KeyedMutex {
  private readonly last = new Map<string, Promise<void>>();

  /**
   * Waits for the mutex of the key.
   * @returns The function that releases it.
   */
  async lock(key: string): Promise<() => void> {
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
