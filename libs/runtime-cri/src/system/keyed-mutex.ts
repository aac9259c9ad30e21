/** Mutexes by key. A mutex is granted in the order of the calls, and is not reentrant. */
export class KeyedMutex {
  /** For each key the promise that resolves when the last holder in the queue has released it. */
  private readonly lastReleases = new Map<string, Promise<void>>();

  /**
   * Waits for the mutex of the key.
   * @returns The function that releases the mutex. Call it exactly once, also after a failure.
   */
  async lock(key: string): Promise<() => void> {
    const previous = this.lastReleases.get(key);
    let release = (): void => undefined;
    const released = new Promise<void>((resolve) => (release = resolve));
    const last = (previous ?? Promise.resolve()).then(() => released);
    this.lastReleases.set(key, last);
    await previous;
    return () => {
      release();
      if (this.lastReleases.get(key) === last) this.lastReleases.delete(key);
    };
  }
}
