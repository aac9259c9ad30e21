/** A response that {@link DirectWrites} writes to. */
export interface DirectTarget {
  /** @returns False when nothing was written. */
  write(bytes: Uint8Array): boolean;
}

/**
 * Writes bytes to a response beside its body, while the body waits for its next chunk and the client
 * has few unread bytes. Closed until the first chunk of the body has been written.
 */
export class DirectWrites {
  private target: DirectTarget | undefined;

  /** Allows writes until {@link close}: all chunks of the body so far are written. */
  open(target: DirectTarget): void {
    this.target = target;
  }

  close(): void {
    this.target = undefined;
  }

  /** @returns False when nothing was written. */
  write(bytes: Uint8Array): boolean {
    return this.target?.write(bytes) ?? false;
  }
}
