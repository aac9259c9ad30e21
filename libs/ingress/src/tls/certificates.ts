import { readFile } from 'node:fs/promises';
import type { SecureContext } from 'node:tls';
import { errorCodeOf, errorMessageOf, type Clock, type Log, type Timer } from '@cloudless/base';
import {
  CERTIFICATE_ENTRY,
  PRIVATE_KEY_ENTRY,
  openCertificatePair,
  type PairNames,
} from '@cloudless/secrets';
import {
  sortByRouteKey,
  toRouteKey,
  type IngressCertificate,
  type IngressRoute,
  type IngressTls,
  type IngressTlsFiles,
} from '../model.js';
import { EVERY_HOST, normaliseHost, toWildcard } from '../routing/host.js';

/** Interval at which the files are read again, milliseconds. */
const CHECK_MS = 5_000;
/** Largest file, bytes. */
const MAX_FILE_BYTES = 1_048_576;

/** Settings of all connections of clients with TLS. */
export const TLS_OPTIONS = { minVersion: 'TLSv1.2' } as const;

/** A certificate and its key in the options of a TLS server. Secret because of the key. */
export interface PemPair {
  readonly cert: string;
  readonly key: string;
}

/** The certificate of the routes with the same hosts and the same files or secret. */
interface Pair {
  readonly tls: IngressTls;
  /** Key of the first route of the pair. */
  readonly routeKey: string;
  readonly hosts: readonly string[];
  /** Certificate and key of `context`; empty when the newest ones do not fit. */
  text: string;
  /** The newest pair that fits; kept while the files or the values of the secret do not fit. */
  context: SecureContext | undefined;
  pem: PemPair | undefined;
  problems: readonly string[];
}

/** Arguments of {@link Certificates}. */
export interface CertificatesOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Reads a file as text. Default: the file system. */
  readonly readText?: (file: string) => Promise<string>;
  /**
   * Returns the newest known certificate in a secret; undefined when none is known, for which the
   * owner of this function reports the reason. Default: none is known.
   * @param secret - "namespace/name".
   */
  readonly readSecret?: (secret: string) => IngressCertificate | undefined;
}

/**
 * The certificates of routes by name, from files that are read again when they change, and from
 * secrets that {@link readSecrets} reads again. A pair that does not fit is reported, and the earlier
 * pair stays.
 */
export class Certificates {
  private pairs = new Map<string, Pair>();
  private byHost = new Map<string, Pair>();
  private conflicts: readonly string[] = [];
  private timer: Timer | undefined;
  private running: Promise<void> = Promise.resolve();
  private isClosed = false;

  /** @param onRead - Called after each read, when other certificates may be served. */
  constructor(
    private readonly options: CertificatesOptions,
    private readonly onRead: () => void,
  ) {}

  /** Reasons why certificates are not served, as texts for people. */
  get problems(): readonly string[] {
    return [...this.conflicts, ...[...this.pairs.values()].flatMap(({ problems }) => problems)];
  }

  /** Resolves when no file is being read. */
  get settled(): Promise<void> {
    return this.running;
  }

  /**
   * Serves the certificates of these routes. Secrets are read before the function returns; the
   * promise resolves when the files are read.
   */
  setRoutes(routes: readonly IngressRoute[]): Promise<void> {
    const pairs = new Map<string, Pair>();
    const byHost = new Map<string, Pair>();
    const conflicts: string[] = [];
    for (const route of sortByRouteKey(routes)) {
      if (route.tls === undefined) continue;
      const hosts = route.hosts.length === 0 ? [EVERY_HOST] : route.hosts;
      const key = JSON.stringify([toTlsKey(route.tls), hosts]);
      const known = pairs.get(key) ?? this.pairs.get(key);
      const pair: Pair = known ?? {
        ...{ tls: route.tls, routeKey: toRouteKey(route), hosts },
        ...{ text: '', context: undefined, pem: undefined, problems: [] },
      };
      pairs.set(key, pair);
      for (const host of hosts.map((each) => each.toLowerCase())) {
        const other = byHost.get(host);
        if (other === undefined) byHost.set(host, pair);
        else if (!isSame(other.tls, route.tls))
          conflicts.push(
            `routes "${other.routeKey}" and "${toRouteKey(route)}" name different certificates for ${host === EVERY_HOST ? 'every host' : `"${host}"`}; that of "${other.routeKey}" is served`,
          );
      }
    }
    [this.pairs, this.byHost, this.conflicts] = [pairs, byHost, conflicts];
    this.readSecrets();
    return this.check();
  }

  /** Serves the certificates that `readSecret` returns now. */
  readSecrets(): void {
    const { readSecret } = this.options;
    for (const pair of this.pairs.values()) {
      if (!('secret' in pair.tls)) continue;
      const { secret } = pair.tls;
      const found = readSecret?.(secret);
      if (found === undefined) continue;
      this.use(pair, found, {
        certificate: CERTIFICATE_ENTRY,
        key: PRIVATE_KEY_ENTRY,
        subject: `secret "${secret}"`,
      });
    }
    this.onRead();
  }

  /**
   * Returns the certificate for a name of a client.
   * @param name - Undefined: the client named none.
   */
  find(name: string | undefined): SecureContext | undefined {
    return this.findPair(name)?.context;
  }

  /** As {@link find}, in PEM. Secret because of the key. */
  findPem(name: string | undefined): PemPair | undefined {
    return this.findPair(name)?.pem;
  }

  /** Returns true when requests for a host may use a connection that was opened for a name. */
  covers(name: string | undefined, host: string): boolean {
    if (name === host) return true;
    const [one, other] = [this.findPair(name), this.findPair(host)];
    return one !== undefined && other !== undefined && isSame(one.tls, other.tls);
  }

  /** Reads no files any more. */
  close(): void {
    this.isClosed = true;
    this.timer?.cancel();
  }

  /** Reads all files, now and at intervals. One check runs at a time. */
  private check(): Promise<void> {
    this.timer?.cancel();
    this.running = this.running.then(async () => {
      const all = [...this.pairs.values()];
      const reads = all.map((pair) => ('secret' in pair.tls ? [] : [this.load(pair, pair.tls)]));
      await Promise.all(reads.flat());
      this.onRead();
      const hasFiles = [...this.pairs.values()].some(({ tls }) => !('secret' in tls));
      if (this.isClosed || !hasFiles) return;
      this.timer?.cancel();
      this.timer = this.options.clock.setTimer(CHECK_MS, () => void this.check());
    });
    return this.running;
  }

  private findPair(name: string | undefined): Pair | undefined {
    const host = name === undefined ? undefined : normaliseHost(name);
    const wildcard = host === undefined ? undefined : toWildcard(host);
    for (const key of [host, wildcard, EVERY_HOST]) {
      const pair = key === undefined ? undefined : this.byHost.get(key);
      if (pair !== undefined) return pair;
    }
    return undefined;
  }

  private async load(pair: Pair, files: IngressTlsFiles): Promise<void> {
    const { readText = readSmallFile } = this.options;
    try {
      const certificate = await readNamed(readText, 'certificate', files.certificateFile);
      const key = await readNamed(readText, 'key', files.keyFile);
      const names = { certificate: files.certificateFile, key: files.keyFile };
      this.use(pair, { certificate, key }, names);
    } catch (reason) {
      this.keepEarlier(pair, reason);
    }
  }

  /** Serves a certificate from now on if its key fits; otherwise reports why it does not. */
  private use(pair: Pair, found: IngressCertificate, names: PairNames): void {
    const { certificate, key } = found;
    const text = `${certificate}\n${key}`;
    if (text === pair.text) return;
    try {
      const { leaf, context } = openCertificatePair(found, names);
      pair.context = context;
      pair.pem = { cert: certificate, key };
      pair.text = text;
      const shown =
        names.subject === undefined
          ? names.certificate
          : `${names.certificate} of ${names.subject}`;
      const uncovered = pair.hosts.filter(
        (host) => host !== EVERY_HOST && leaf.checkHost(toExampleHost(host)) === undefined,
      );
      this.report(
        pair,
        uncovered.map((host) => `${shown} is not for "${host}"`),
      );
    } catch (reason) {
      this.keepEarlier(pair, reason);
    }
  }

  private keepEarlier(pair: Pair, reason: unknown): void {
    const kept = pair.context === undefined ? '' : '; the earlier certificate is served';
    pair.text = '';
    this.report(pair, [`${errorMessageOf(reason)}${kept}`]);
  }

  private report(pair: Pair, problems: readonly string[]): void {
    const before = pair.problems;
    pair.problems = problems.map((problem) => `route "${pair.routeKey}": ${problem}`);
    for (const problem of pair.problems)
      if (!before.includes(problem)) this.options.log.warn('certificate of a route', { problem });
  }
}

/** Returns the host itself, or a name that a wildcard covers. */
function toExampleHost(host: string): string {
  return host.replace(/^\*/, 'any');
}

/** Identifies the files or the secret. */
function toTlsKey(tls: IngressTls): string {
  return JSON.stringify('secret' in tls ? [tls.secret] : [tls.certificateFile, tls.keyFile]);
}

function isSame(a: IngressTls, b: IngressTls): boolean {
  return toTlsKey(a) === toTlsKey(b);
}

async function readNamed(
  read: (file: string) => Promise<string>,
  what: string,
  file: string,
): Promise<string> {
  try {
    return await read(file);
  } catch (reason) {
    const problem = errorCodeOf(reason) ?? errorMessageOf(reason);
    throw new Error(`cannot read the ${what} ${file}: ${problem}`);
  }
}

async function readSmallFile(file: string): Promise<string> {
  const bytes = await readFile(file);
  if (bytes.length > MAX_FILE_BYTES) throw new Error('larger than 1 MiB');
  return bytes.toString('latin1');
}
