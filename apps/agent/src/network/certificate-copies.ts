import { createHash } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { errorFields, type Clock, type Log, type Timer } from '@cloudless/base';
import type { ServedSecretVersion } from '@cloudless/mesh';
import type { CertificatePair } from '@cloudless/secrets';
import { SealedFiles, type SealedText } from '../data/sealed-files.js';

/** Folder in the directory of a proxy with the copies, and the file with their key. */
export const CERTIFICATES_FOLDER = 'certificates';
export const CERTIFICATES_KEY_FILE = 'certificates.key';
const FORMAT = 1;
/** Delay after a copy that could not be stored or removed, milliseconds. */
const RETRY_MS = 30_000;

/** A certificate that a coordinator has sent. */
export interface ReceivedCertificate {
  /** The version of the secret that the pair is from. */
  readonly version: ServedSecretVersion;
  readonly pair: CertificatePair;
}

/** Content of a file. */
interface Copy extends SealedText, ServedSecretVersion {
  readonly format: number;
  readonly secret: string;
}

/**
 * Copies of the certificates from secrets, encrypted with a key of this node, so that a proxy serves
 * TLS after its start while no coordinator answers.
 */
export class CertificateCopies {
  private readonly files: SealedFiles;
  /** What each file contains. Undefined: nothing that can be used. */
  private readonly stored = new Map<string, ReceivedCertificate | undefined>();
  private wanted: ReadonlyMap<string, ReceivedCertificate> = new Map();
  private mayRemove = false;
  private retryTimer: Timer | undefined;
  private running: Promise<void> = Promise.resolve();
  private isStopped = false;

  /** @param directory - Directory of the proxy, which exists. */
  constructor(
    directory: string,
    private readonly deps: { readonly clock: Clock; readonly log: Log },
  ) {
    this.files = new SealedFiles(
      join(directory, CERTIFICATES_FOLDER),
      join(directory, CERTIFICATES_KEY_FILE),
    );
  }

  /**
   * Returns the stored certificates by secret (`<namespace>/<name>`), without those that are damaged
   * or of another node.
   */
  async load(): Promise<ReadonlyMap<string, ReceivedCertificate>> {
    const { log } = this.deps;
    // Here and not at the first copy: while a proxy takes over, its predecessor may write as well.
    await this.files
      .prepareKey()
      .catch((reason: unknown) =>
        log.warn('certificates of routes cannot be stored', errorFields(reason)),
      );
    const loaded = new Map<string, ReceivedCertificate>();
    for (const name of await this.files.list()) {
      this.stored.set(name, undefined);
      try {
        const { secret, received } = await this.read(name);
        this.stored.set(name, received);
        loaded.set(secret, received);
      } catch (reason) {
        const file = join(CERTIFICATES_FOLDER, name);
        log.warn('copy of a certificate is damaged and not used', { file, ...errorFields(reason) });
      }
    }
    return loaded;
  }

  /**
   * Stores certificates soon.
   * @param received - By secret. Read again at each write.
   * @param mayRemove - True: copies of other secrets are removed.
   */
  keep(received: ReadonlyMap<string, ReceivedCertificate>, mayRemove: boolean): void {
    this.wanted = received;
    this.mayRemove = mayRemove;
    this.retryTimer?.cancel();
    this.running = this.running.then(() => this.write());
  }

  /** Resolves when nothing is being written. */
  get settled(): Promise<void> {
    return this.running;
  }

  /** Writes nothing any more: another process keeps the copies from now on. */
  stop(): void {
    this.isStopped = true;
    this.retryTimer?.cancel();
  }

  private async write(): Promise<void> {
    try {
      const names = new Set<string>();
      for (const [secret, received] of [...this.wanted]) {
        const name = toFileName(secret);
        names.add(name);
        if (this.stored.get(name) === received) continue;
        if (this.isStopped) return;
        await this.save(name, secret, received);
        this.stored.set(name, received);
      }
      if (!this.mayRemove) return;
      for (const name of [...this.stored.keys()]) {
        if (names.has(name)) continue;
        if (this.isStopped) return;
        await this.files.remove(name);
        this.stored.delete(name);
      }
    } catch (reason) {
      this.deps.log.warn('copies of certificates not stored; trying again', errorFields(reason));
      if (this.isStopped) return;
      this.retryTimer?.cancel();
      this.retryTimer = this.deps.clock.setTimer(RETRY_MS, () =>
        this.keep(this.wanted, this.mayRemove),
      );
    }
  }

  private async save(
    name: string,
    secret: string,
    { version: { secretUid, version }, pair }: ReceivedCertificate,
  ): Promise<void> {
    const open = { format: FORMAT, secret, secretUid, version };
    const text = JSON.stringify([pair.certificate, pair.key]);
    const copy: Copy = { ...open, ...(await this.files.seal(text, toContext(open))) };
    await this.files.write(name, JSON.stringify(copy));
  }

  /** @throws when the file cannot be read, or is damaged or of another format, name or key. */
  private async read(
    name: string,
  ): Promise<{ readonly secret: string; readonly received: ReceivedCertificate }> {
    const copy = JSON.parse(await this.files.read(name)) as Copy;
    const { format, secret, secretUid, version } = copy;
    if (format !== FORMAT || toFileName(secret) !== name) throw new Error('unknown format');
    const text = await this.files.unseal(copy, toContext(copy));
    const [certificate, key] = JSON.parse(text) as [string, string];
    return { secret, received: { version: { secretUid, version }, pair: { certificate, key } } };
  }
}

/** Removes all copies of a proxy and their key. */
export async function removeCertificateCopies(directory: string): Promise<void> {
  for (const name of [CERTIFICATES_FOLDER, CERTIFICATES_KEY_FILE])
    await rm(join(directory, name), { recursive: true, force: true });
}

/** Names of secrets may be longer than a file name. */
function toFileName(secret: string): string {
  return createHash('sha256').update(secret).digest('hex');
}

/** Binds the pair to its secret and version. */
function toContext({ format, secret, secretUid, version }: Omit<Copy, keyof SealedText>): string {
  return JSON.stringify([format, secret, secretUid, version]);
}
