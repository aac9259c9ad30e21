import type { IdentityFileName, IdentityFiles } from '../identity/identity-files.js';

/** An in-memory identity directory that survives crashes, as a disk does. */
export class MemoryIdentityFiles implements IdentityFiles {
  readonly content = new Map<IdentityFileName, string>();
  /** Number of changes since the beginning. */
  changes = 0;
  /** The process crashes at the change with this number: before the change, or just after it. */
  crash: { readonly atChange: number; readonly isDone: boolean } | undefined;

  async read(name: IdentityFileName): Promise<string | undefined> {
    return this.content.get(name);
  }

  write(name: IdentityFileName, text: string): Promise<void> {
    return this.change(() => this.content.set(name, text));
  }

  remove(name: IdentityFileName): Promise<void> {
    return this.change(() => this.content.delete(name));
  }

  private async change(apply: () => unknown): Promise<void> {
    await Promise.resolve(); // asynchronous, as a disk is
    this.changes += 1;
    const isCrash = this.changes === this.crash?.atChange;
    if (!isCrash || this.crash?.isDone === true) apply();
    if (isCrash) throw new CrashError();
  }
}

/** The end of the process in the middle of its work. */
export class CrashError extends Error {
  override readonly name = 'CrashError';
}
