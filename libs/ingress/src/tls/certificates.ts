import { X509Certificate, createPrivateKey } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createSecureContext, type SecureContext } from 'node:tls';
import { errorMessageOf, type Clock, type Log, type Timer } from '@cloudless/base';
import { toRouteKey, type IngressRoute, type IngressTls } from '../model.js';
import { normaliseHost, toWildcard } from '../routing/host.js';

/** Interval at which the files are looked at, milliseconds. */
const CHECK_MS = 5_000;
/** Largest file, bytes. */
const MAX_FILE_BYTES = 1_048_576;
/** Key of the certificate of routes that have every host. */
const EVERY_HOST = '*';

interface Pair {
  readonly files: IngressTls;
  readonly routeKey: string;
  readonly hosts: readonly string[];
  /** Text of both files as they were read last. */
  text: string;
  /** The newest pair that fits; kept while the files do not fit. */
  context: SecureContext | undefined;
  pem: { readonly cert: string; readonly key: string } | undefined;
  problems: readonly string[];
}

export interface CertificatesOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Reads a file as text. Default: the file system. */
  readonly readText?: (file: string) => Promise<string>;
}

/**
 * The certificates of routes by name, from files that are read again when they change. A pair that
 * does not fit is reported, and the earlier pair stays.
 */
export class Certificates {
  private pairs = new Map<string, Pair>();
  private byHost = new Map<string, Pair>();
  private conflicts: readonly string[] = [];
  private timer: Timer | undefined;
  private running: Promise<void> = Promise.resolve();
  private isClosed = false;

  /** @param onChange - Called when another certificate is served to clients without a name. */
  constructor(
    private readonly options: CertificatesOptions,
    private readonly onChange: () => void = () => undefined,
  ) {}

  /** Reasons why certificates are not served, as texts for people. */
  get problems(): readonly string[] {
    return [...this.conflicts, ...[...this.pairs.values()].flatMap(({ problems }) => problems)];
  }

  /** Resolves when no file is being read. */
  get settled(): Promise<void> {
    return this.running;
  }

  /** Serves the certificates of these routes. Resolves when their files are read. */
  setRoutes(routes: readonly IngressRoute[]): Promise<void> {
    const pairs = new Map<string, Pair>();
    const byHost = new Map<string, Pair>();
    const conflicts: string[] = [];
    const sorted = [...routes].sort((a, b) => (toRouteKey(a) < toRouteKey(b) ? -1 : 1));
    for (const route of sorted) {
      if (route.tls === undefined) continue;
      const hosts = route.hosts.length === 0 ? [EVERY_HOST] : route.hosts;
      const key = JSON.stringify([route.tls.certificateFile, route.tls.keyFile, hosts]);
      const known = pairs.get(key) ?? this.pairs.get(key);
      const pair: Pair = known ?? {
        ...{ files: route.tls, routeKey: toRouteKey(route), hosts },
        ...{ text: '', context: undefined, pem: undefined, problems: [] },
      };
      pairs.set(key, pair);
      for (const host of hosts.map((each) => each.toLowerCase())) {
        const other = byHost.get(host);
        if (other === undefined) byHost.set(host, pair);
        else if (!isSame(other.files, route.tls))
          conflicts.push(
            `routes "${other.routeKey}" and "${toRouteKey(route)}" name different certificates for ${host === EVERY_HOST ? 'every host' : `"${host}"`}; that of "${other.routeKey}" is served`,
          );
      }
    }
    [this.pairs, this.byHost, this.conflicts] = [pairs, byHost, conflicts];
    return this.check();
  }

  /**
   * Returns the certificate for a name of a client.
   * @param name - Undefined: the client named none.
   */
  find(name: string | undefined): SecureContext | undefined {
    return this.pairFor(name)?.context;
  }

  /** As {@link find}, in PEM. Secret because of the key. */
  findPem(name: string | undefined): { readonly cert: string; readonly key: string } | undefined {
    return this.pairFor(name)?.pem;
  }

  /** Returns true when requests for a host may use a connection that was opened for a name. */
  covers(name: string | undefined, host: string): boolean {
    if (name === host) return true;
    const [one, other] = [this.pairFor(name), this.pairFor(host)];
    return one !== undefined && other !== undefined && isSame(one.files, other.files);
  }

  close(): void {
    this.isClosed = true;
    this.timer?.cancel();
  }

  /** Reads files that have changed. One check runs at a time. */
  check(): Promise<void> {
    this.timer?.cancel();
    this.running = this.running.then(async () => {
      await Promise.all([...this.pairs.values()].map((pair) => this.load(pair)));
      this.onChange();
      if (this.isClosed || this.pairs.size === 0) return;
      this.timer?.cancel();
      this.timer = this.options.clock.setTimer(CHECK_MS, () => void this.check());
    });
    return this.running;
  }

  private pairFor(name: string | undefined): Pair | undefined {
    const host = name === undefined ? undefined : normaliseHost(name);
    const wildcard = host === undefined ? undefined : toWildcard(host);
    for (const key of [host, wildcard, EVERY_HOST]) {
      const pair = key === undefined ? undefined : this.byHost.get(key);
      if (pair !== undefined) return pair;
    }
    return undefined;
  }

  private async load(pair: Pair): Promise<void> {
    const { files, routeKey, hosts } = pair;
    const { log, readText = readSmallFile } = this.options;
    const before = pair.problems;
    try {
      const certificate = await readNamed(readText, 'certificate', files.certificateFile);
      const key = await readNamed(readText, 'key', files.keyFile);
      if (`${certificate}\n${key}` === pair.text) return;
      pair.problems = [];
      const leaf = checkPair(certificate, key, files);
      pair.context = createSecureContext({ cert: certificate, key, minVersion: 'TLSv1.2' });
      pair.pem = { cert: certificate, key };
      pair.text = `${certificate}\n${key}`;
      pair.problems = hosts
        .filter((host) => host !== EVERY_HOST && leaf.checkHost(toProbe(host)) === undefined)
        .map((host) => `route "${routeKey}": ${files.certificateFile} is not for "${host}"`);
    } catch (reason) {
      const kept = pair.context === undefined ? '' : '; the earlier certificate is served';
      pair.text = '';
      pair.problems = [`route "${routeKey}": ${errorMessageOf(reason)}${kept}`];
    }
    for (const problem of pair.problems)
      if (!before.includes(problem)) log.warn('certificate of a route', { problem });
  }
}

/** A name that a wildcard covers. */
function toProbe(host: string): string {
  return host.replace(/^\*/, 'any');
}

function isSame(a: IngressTls, b: IngressTls): boolean {
  return a.certificateFile === b.certificateFile && a.keyFile === b.keyFile;
}

async function readNamed(
  read: (file: string) => Promise<string>,
  what: string,
  file: string,
): Promise<string> {
  try {
    return await read(file);
  } catch (reason) {
    const { code } = reason as NodeJS.ErrnoException;
    throw new Error(`cannot read the ${what} ${file}: ${code ?? errorMessageOf(reason)}`);
  }
}

async function readSmallFile(file: string): Promise<string> {
  const bytes = await readFile(file);
  if (bytes.length > MAX_FILE_BYTES) throw new Error('larger than 1 MiB');
  return bytes.toString('latin1');
}

/** @throws when the key does not belong to the certificate, or one of them is malformed. */
function checkPair(certificate: string, key: string, files: IngressTls): X509Certificate {
  let leaf: X509Certificate;
  try {
    leaf = new X509Certificate(certificate);
  } catch {
    throw new Error(`${files.certificateFile} has no certificate in PEM`);
  }
  let matches: boolean;
  try {
    matches = leaf.checkPrivateKey(createPrivateKey(key));
  } catch {
    throw new Error(`${files.keyFile} has no unencrypted private key in PEM`);
  }
  if (!matches)
    throw new Error(`the key ${files.keyFile} does not belong to ${files.certificateFile}`);
  return leaf;
}
