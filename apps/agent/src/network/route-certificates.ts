import { fromConnectError, type GetRouteCertificateResponse } from '@cloudless/api';
import {
  backoffDelayMs,
  CloudlessError,
  errorFields,
  type BackoffPolicy,
  type Clock,
  type Log,
  type Random,
  type Timer,
} from '@cloudless/base';
import {
  toServiceKey,
  type CoordinatorConnection,
  type ServedRoute,
  type ServedSecretVersion,
} from '@cloudless/mesh';
import {
  CERTIFICATE_ENTRY,
  PRIVATE_KEY_ENTRY,
  requireCertificatePair,
  type CertificatePair,
} from '@cloudless/secrets';
import type { CertificateCopies, ReceivedCertificate } from './certificate-copies.js';

/** Delay after a call that failed. An audience that is added later changes nothing in the feed. */
const RETRY: BackoffPolicy = { firstMs: 500, maxMs: 30_000, jitter: 0.5 };
/**
 * Longest wait before a known certificate is replaced, milliseconds. Waits are random, so that the
 * nodes of a cluster do not call the leader at the same moment.
 */
const REPLACE_WAIT_MS = 2_000;
/** Calls at a time. */
const MAX_CALLS = 4;
/** Time limit of a call, milliseconds. */
const CALL_TIMEOUT_MS = 10_000;
/** Largest number of problems. */
const MAX_PROBLEMS = 100;

/** The part of a connection with which certificates are fetched. */
export type CertificateConnection = Pick<CoordinatorConnection, 'client'>;

/** Arguments of {@link RouteCertificates}. */
export interface RouteCertificatesDeps {
  readonly nodeId: string;
  readonly copies: Pick<CertificateCopies, 'load' | 'keep' | 'stop'>;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  /** Called when {@link RouteCertificates.read} returns another pair for a secret. */
  readonly onChange: () => void;
}

type RouteName = Pick<ServedRoute, 'namespace' | 'name'>;

/** A secret that served routes name. */
interface NamedSecret {
  /** `<namespace>/<name>`. */
  readonly secret: string;
  /** The routes that name the secret, ascending; at least one. */
  routes: readonly RouteName[];
  /** The newest version, as the routes say; several while an update is under way. */
  versions: readonly ServedSecretVersion[];
  /** Index of the route for the next call, modulo the number of routes. */
  routeIndex: number;
  /** Failed calls in a row. */
  failures: number;
  /** The problem of the last call, when that call failed. */
  problem: string | undefined;
  timer: Timer | undefined;
  isCalling: boolean;
}

/**
 * The certificates of the served routes that name secrets. Each certificate is fetched once, however
 * many routes name its secret, and fetched again when the coordinator names another version. A known
 * certificate is served until a newer one has arrived, whatever the coordinator answers, and is
 * forgotten when no served route names the secret.
 */
export class RouteCertificates {
  private readonly received = new Map<string, ReceivedCertificate>();
  private readonly named = new Map<string, NamedSecret>();
  /** Secrets that wait for one of {@link MAX_CALLS}. */
  private readonly due = new Set<NamedSecret>();
  private calls = 0;
  private connection: CertificateConnection | undefined;
  private isComplete = false;
  private readonly stopping = new AbortController();

  constructor(private readonly deps: RouteCertificatesDeps) {}

  /** Reads the local copies. Nothing is fetched before {@link update}. */
  async load(): Promise<void> {
    for (const [secret, copy] of await this.deps.copies.load()) this.received.set(secret, copy);
  }

  /**
   * Follows the served routes.
   * @param isComplete - False: the routes may be from a snapshot or missing, so that nothing is
   *   forgotten.
   */
  update(routes: Iterable<ServedRoute>, isComplete: boolean): void {
    if (this.stopping.signal.aborted) return;
    const all = groupBySecret(routes);
    for (const [secret, each] of this.named) {
      if (all.has(secret)) continue;
      this.cancel(each);
      this.named.delete(secret);
    }
    for (const [secret, { routes: users, versions }] of all) {
      const each = this.named.get(secret) ?? createNamed(secret);
      this.named.set(secret, each);
      if (JSON.stringify([users, versions]) !== JSON.stringify([each.routes, each.versions])) {
        each.routes = users;
        each.versions = versions;
        each.problem = undefined;
        this.cancel(each);
      }
      this.plan(each);
    }
    this.isComplete ||= isComplete;
    if (this.isComplete) {
      // A copy that cannot be used has no certificate, and is removed in the same way.
      for (const secret of this.received.keys()) if (!all.has(secret)) this.received.delete(secret);
      this.deps.copies.keep(this.received, true);
    }
    this.send();
  }

  /**
   * Fetches through a connection, at once what could not be fetched before.
   * @returns Ends the use of the connection. Call it before the connection is closed.
   */
  useConnection(connection: CertificateConnection): () => void {
    this.setConnection(connection);
    return () => {
      if (this.connection === connection) this.setConnection(undefined);
    };
  }

  /**
   * Returns the newest known certificate in a secret; undefined when none has arrived.
   * @param secret - `<namespace>/<name>`.
   */
  read(secret: string): CertificatePair | undefined {
    return this.received.get(secret)?.pair;
  }

  /** Reasons why certificates are missing or not the newest, as texts for people. At most 100. */
  get problems(): readonly string[] {
    return [...this.named.values()]
      .map((each) => this.explain(each))
      .filter((problem) => problem !== undefined)
      .slice(0, MAX_PROBLEMS);
  }

  /** Fetches and stores nothing any more. Known certificates stay. */
  stop(): void {
    this.stopping.abort();
    this.setConnection(undefined);
    this.deps.copies.stop();
  }

  private setConnection(connection: CertificateConnection | undefined): void {
    this.connection = this.stopping.signal.aborted ? undefined : connection;
    for (const each of this.named.values()) {
      this.cancel(each);
      this.plan(each);
    }
    this.send();
  }

  /** Ends a wait, so that the next plan begins anew. */
  private cancel(each: NamedSecret): void {
    each.timer?.cancel();
    each.timer = undefined;
    this.due.delete(each);
    each.failures = 0;
  }

  /** Decides when the certificate is fetched next, if that is not decided. */
  private plan(each: NamedSecret): void {
    if (!this.isOutdated(each)) {
      this.cancel(each);
      each.problem = undefined;
      return;
    }
    const isPlanned = each.isCalling || each.timer !== undefined || this.due.has(each);
    if (this.connection === undefined || isPlanned) return;
    const { clock, random } = this.deps;
    const isKnown = this.received.has(each.secret);
    if (each.failures === 0 && !isKnown) return void this.due.add(each);
    const delayMs =
      each.failures === 0
        ? REPLACE_WAIT_MS * random.next()
        : backoffDelayMs(RETRY, each.failures, random);
    each.timer = clock.setTimer(delayMs, () => {
      each.timer = undefined;
      this.due.add(each);
      this.send();
    });
  }

  private send(): void {
    for (const each of this.due) {
      if (this.connection === undefined || this.calls >= MAX_CALLS) return;
      this.due.delete(each);
      void this.fetch(each, this.connection);
    }
  }

  private async fetch(each: NamedSecret, connection: CertificateConnection): Promise<void> {
    const { nodeId, log } = this.deps;
    const { namespace = '', name = '' } = each.routes[each.routeIndex % each.routes.length] ?? {};
    this.calls += 1;
    each.isCalling = true;
    const isWanted = (): boolean =>
      this.named.get(each.secret) === each && !this.stopping.signal.aborted;
    try {
      const response = await connection.client.getRouteCertificate(
        { nodeId, namespace, name },
        { timeoutMs: CALL_TIMEOUT_MS, signal: this.stopping.signal },
      );
      if (isWanted()) this.accept(each, response);
    } catch (reason) {
      // The end of the connection says nothing about the route.
      if (isWanted() && this.connection === connection) {
        const error = fromConnectError(reason);
        const cause =
          error.kind === 'unimplemented'
            ? 'the coordinator is of a release without certificates from secrets; upgrade it'
            : error.message;
        each.problem = `route "${toServiceKey(namespace, name)}": the certificate of the secret "${each.secret}" cannot be fetched: ${cause}`;
        each.failures += 1;
        each.routeIndex += 1;
        log[each.failures === 1 ? 'warn' : 'debug'](
          'certificate of a route not fetched; trying again',
          { route: toServiceKey(namespace, name), secret: each.secret, ...errorFields(error) },
        );
      }
    }
    this.calls -= 1;
    each.isCalling = false;
    if (isWanted()) this.plan(each);
    this.send();
  }

  /** @throws when the values cannot serve TLS, or are those that are known while others are due. */
  private accept(each: NamedSecret, response: GetRouteCertificateResponse): void {
    const { secret, versions } = each;
    if (response.version === undefined)
      throw new CloudlessError('internal', 'the coordinator has sent no version');
    const { secretUid, version } = response.version;
    const sent = { secretUid, version };
    const known = this.received.get(secret)?.version;
    const isNamed = versions.some((named) => isSame(named, sent));
    const isUseful = known === undefined || isNewer(sent, known) || isNamed;
    if (!isUseful || (known !== undefined && isSame(sent, known))) {
      if (!this.isOutdated(each)) return;
      throw new CloudlessError(
        'conflict',
        `the coordinator has sent version ${version} instead of version ${versions[0]?.version}`,
      );
    }
    const data = new Map([
      [CERTIFICATE_ENTRY, response.certificate],
      [PRIVATE_KEY_ENTRY, response.key],
    ]);
    const pair = requireCertificatePair(data, `secret "${secret}"`);
    this.received.set(secret, { version: sent, pair });
    [each.failures, each.problem] = [0, undefined];
    this.deps.copies.keep(this.received, this.isComplete);
    this.deps.log.info('certificate of a secret is served', { secret, version });
    this.deps.onChange();
  }

  /** Lower versions count as well: they follow when a backup of the store was restored. */
  private isOutdated({ secret, versions }: NamedSecret): boolean {
    const known = this.received.get(secret)?.version;
    return versions.some((named) => known === undefined || !isSame(named, known));
  }

  private explain(each: NamedSecret): string | undefined {
    const { secret, routes, versions } = each;
    const { namespace = '', name = '' } = routes[0] ?? {};
    const prefix = `route "${toServiceKey(namespace, name)}": `;
    const isKnown = this.received.has(secret);
    const kept = isKnown ? '; the earlier certificate is served' : '';
    if (versions.length === 0) return `${prefix}the coordinator knows no secret "${secret}"${kept}`;
    if (!this.isOutdated(each)) return undefined;
    if (each.problem !== undefined) return `${each.problem}${kept}`;
    if (isKnown) return undefined;
    const why = this.connection === undefined ? ': no coordinator is connected' : ' yet';
    return `${prefix}the certificate of the secret "${secret}" has not arrived${why}`;
  }
}

function createNamed(secret: string): NamedSecret {
  return {
    ...{ secret, routes: [], versions: [], routeIndex: 0, failures: 0 },
    ...{ problem: undefined, timer: undefined, isCalling: false },
  };
}

function isSame(one: ServedSecretVersion, other: ServedSecretVersion): boolean {
  return one.secretUid === other.secretUid && one.version === other.version;
}

/** A secret that was created again counts as newer: its versions begin anew. */
function isNewer(one: ServedSecretVersion, known: ServedSecretVersion): boolean {
  return one.secretUid !== known.secretUid || one.version > known.version;
}

function groupBySecret(
  served: Iterable<ServedRoute>,
): ReadonlyMap<string, Pick<NamedSecret, 'routes' | 'versions'>> {
  const sorted = [...served].sort((a, b) => (toKey(a) < toKey(b) ? -1 : 1));
  const all = new Map<string, { routes: RouteName[]; versions: ServedSecretVersion[] }>();
  for (const { namespace, name, tls } of sorted) {
    if (tls === undefined || !('secret' in tls)) continue;
    const { secret, version } = tls;
    const group = all.get(secret) ?? { routes: [], versions: [] };
    all.set(secret, group);
    group.routes.push({ namespace, name });
    if (version !== undefined && !group.versions.some((each) => isSame(each, version)))
      group.versions.push(version);
  }
  return all;
}

function toKey({ namespace, name }: RouteName): string {
  return toServiceKey(namespace, name);
}
