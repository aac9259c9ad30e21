import type { CliIo, ClientIdentity } from '../io/io.js';
import { readIdentity } from './stored-identity.js';
import type { StoredIdentity } from './stored-identity.js';

/** The part of the environment of a command that a renewal needs. */
export type RenewalIo = Pick<CliIo, 'files' | 'clock' | 'signal'>;

/** The identity of a command, which a renewal by this or another process replaces. */
export class CurrentIdentity {
  /**
   * @param directory - Directory of the identity.
   * @param bundlePem - The roots to trust instead of those of the identity.
   */
  constructor(
    private readonly io: RenewalIo,
    readonly directory: string,
    private identity: StoredIdentity,
    private readonly bundlePem?: string,
  ) {}

  /** Number of times that the identity was replaced by that of another process. */
  reloads = 0;

  /** The newest known identity. */
  get stored(): StoredIdentity {
    return this.identity;
  }

  /** The newest known identity for a new connection. */
  get clientIdentity(): ClientIdentity {
    return this.bundlePem === undefined
      ? this.identity
      : { ...this.identity, bundlePem: this.bundlePem };
  }

  /** Uses a renewed identity for new connections. */
  replace(identity: StoredIdentity): void {
    this.identity = identity;
  }

  /**
   * Reads the identity again, which another process may have renewed.
   * @returns True when there is a newer identity, which new connections use.
   */
  async reload(): Promise<boolean> {
    const stored = await readIdentity(this.io.files, this.directory);
    if (stored === undefined || stored.notAfterMs <= this.identity.notAfterMs) return false;
    this.identity = stored;
    this.reloads += 1;
    return true;
  }
}
