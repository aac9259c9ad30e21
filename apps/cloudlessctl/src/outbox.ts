/**
 * What one side puts in and the other takes out, in order; whoever puts in can wait until it was
 * taken.
 */
export class Outbox<Item> {
  private readonly items: { readonly item: Item; readonly taken: () => void }[] = [];
  private over = false;
  private wake: (() => void) | undefined;

  /** Resolves once it was taken, or never will be. */
  put(item: Item): Promise<void> {
    if (this.over) return Promise.resolve();
    return new Promise((resolve) => {
      this.items.push({ item, taken: resolve });
      this.wake?.();
    });
  }

  /** Nothing more is put in; what is there is still given out. */
  end(): void {
    this.over = true;
    this.wake?.();
  }

  /** Nobody takes anything any more. */
  close(): void {
    this.end();
    for (const { taken } of this.items.splice(0)) taken();
  }

  /** Everything until the end; read once. */
  async *read(): AsyncGenerator<Item> {
    for (;;) {
      const next = this.items.shift();
      if (next !== undefined) {
        next.taken();
        yield next.item;
      } else if (this.over) return;
      else await new Promise<void>((resolve) => (this.wake = resolve));
    }
  }
}
