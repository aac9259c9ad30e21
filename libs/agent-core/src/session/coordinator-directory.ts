import type { StoredCoordinator } from '../store/agent-store.js';

/**
 * Most coordinators that an agent remembers beside its configured addresses. Clusters have three or
 * five; the others were replaced.
 */
const MAX_KNOWN = 16;
/**
 * Most redirects that an agent follows one after the other without a session. Coordinators that
 * name each other while the leadership changes must not keep an agent busy.
 */
const MAX_REDIRECTS = 3;
/**
 * Time after which an agent believes that a silent coordinator still leads in the same epoch,
 * milliseconds. Longer than the lease of a leader lasts in the store, also when etcd changes its
 * own leader: who is named after this time has renewed that lease since.
 */
const SILENCE_MS = 6_000;

/** How an attempt has ended. */
export interface DialOutcome {
  /** True when a session had begun. */
  readonly hadSession: boolean;
  /** True when the coordinator did not answer: it may be gone with its machine. */
  readonly isSilent: boolean;
  /** True when no TCP connection to the coordinator was opened. */
  readonly isUnreachable: boolean;
  /** Monotonic time at the end, milliseconds. */
  readonly nowMs: number;
  /** Epoch of the session, if there was one. */
  readonly epoch?: bigint | undefined;
  /** The leader, when the coordinator does not lead and knows who does. */
  readonly leader?: NamedLeader | undefined;
}

/** A leader that a coordinator has named. */
export interface NamedLeader {
  readonly address: string;
  /** Undefined when the coordinator did not say it. */
  readonly epoch: bigint | undefined;
}

/** The next dial. */
export interface NextDial {
  readonly address: string;
  /** A coordinator named this address as that of the leader: the agent dials at once. */
  readonly isRedirect: boolean;
  /**
   * The coordinator at this address did not answer a moment ago, and another one did in the last
   * round.
   */
  readonly wasSilent: boolean;
  /** The leader was lost with this attempt: the other coordinators may still elect the next one. */
  readonly hasLostLeader: boolean;
  /** True when no address is left that was not tried since the last session. */
  readonly hasTriedAll: boolean;
}

/**
 * Decides which coordinator an agent dials: the configured addresses and those of the coordinators
 * that the cluster has named, one after the other, and the leader as soon as its address is known.
 * Pure.
 */
export class CoordinatorDirectory {
  private addresses: readonly string[];
  /** Address of the running or next attempt. */
  private address: string;
  /** The newest address of the round: another one than {@link address} after a redirect. */
  private position: string;
  private redirects = 0;
  /** Epoch in which the coordinator at {@link address} was named as the leader. */
  private namedEpoch: bigint | undefined;
  /** The leader of the newest session, or the newest one that was named. */
  private leader: (NamedLeader & { readonly hadSession: boolean }) | undefined;
  /** As {@link unreachableLeader}. */
  private lost: { readonly address: string; readonly epoch: bigint } | undefined;
  /** When a coordinator did not answer, and the epoch of that attempt, by address. */
  private readonly silences = new Map<
    string,
    { readonly atMs: number; readonly epoch: bigint | undefined }
  >();
  /** Failed attempts since the last session, without those at a named leader. */
  private failures = 0;
  /** Attempts without an answer since the newest attempt with one. */
  private unanswered = 0;
  /** True while the agent dials a leader that a coordinator has named. */
  private isRedirected = false;

  /**
   * @param configured - Base addresses, at least one, all with the same scheme.
   * @param known - What {@link mergeKnown} has returned last.
   * @param isReversed - True: dials the first address, then the last, then backwards. When agents
   *   with the same addresses lose their leader, half of them should do so, so that they do not all
   *   dial the same coordinator.
   */
  constructor(
    private readonly configured: readonly string[],
    known: readonly StoredCoordinator[] = [],
    private readonly isReversed = false,
  ) {
    this.addresses = this.list(known);
    this.position = this.addresses[0] ?? '';
    this.address = this.position;
  }

  /** The address of the first attempt, or of the newest {@link next}. */
  get current(): string {
    return this.address;
  }

  /** True when the agent has only one address. */
  get isSingle(): boolean {
    return this.addresses.length === 1;
  }

  /**
   * The leader that the agent does not reach, since the newest dial of its address failed;
   * undefined: there is none, or its epoch is not known.
   */
  get unreachableLeader(): { readonly address: string; readonly epoch: bigint } | undefined {
    return this.lost;
  }

  /** Uses the addresses of known coordinators from the next attempt on. */
  setKnown(known: readonly StoredCoordinator[]): void {
    this.addresses = this.list(known);
  }

  /** Returns the next address after an attempt. */
  next(outcome: DialOutcome): NextDial {
    const { hadSession, isSilent, nowMs, epoch, leader } = outcome;
    const hasLostLeader = this.noteReach(outcome);
    if (hadSession) {
      this.redirects = 0;
      this.failures = 0;
      this.position = this.address;
    } else if (!this.isRedirected) this.failures += 1;
    for (const [address, { atMs }] of this.silences)
      if (nowMs - atMs >= SILENCE_MS) this.silences.delete(address);
    this.unanswered = isSilent || outcome.isUnreachable ? this.unanswered + 1 : 0;
    if (isSilent) this.silences.set(this.address, { atMs: nowMs, epoch: epoch ?? this.namedEpoch });
    this.namedEpoch = undefined;
    if (leader !== undefined && this.mayFollow(leader)) {
      this.redirects += 1;
      this.address = leader.address;
      this.namedEpoch = leader.epoch;
      this.leader = { ...leader, hadSession: false };
      this.isRedirected = true;
      return {
        address: this.address,
        isRedirect: true,
        ...{ wasSilent: false, hasLostLeader: false, hasTriedAll: false },
      };
    }
    const wasRedirected = this.isRedirected;
    this.isRedirected = false;
    // After a session: a restarted coordinator answers at the same address.
    if (!hadSession || isSilent) this.advance(wasRedirected && isSilent ? this.address : undefined);
    const isRoundOver = this.failures > 0 && this.failures % this.addresses.length === 0;
    const hasTriedAll = hadSession || isRoundOver;
    if (hasTriedAll) this.redirects = 0;
    // When none of the coordinators answers, they are busy rather than gone.
    const wasSilent = this.unanswered < this.addresses.length && this.silences.has(this.address);
    return { address: this.address, isRedirect: false, wasSilent, hasLostLeader, hasTriedAll };
  }

  /**
   * Records whether the agent reaches the leader of {@link leader}.
   * @returns True when this attempt is the first to show that the agent does not reach the leader
   *   of its session, and has failed fast: an election may still run.
   */
  private noteReach({ hadSession, isSilent, isUnreachable, epoch }: DialOutcome): boolean {
    if (hadSession) this.leader = { address: this.address, epoch, hadSession };
    const { leader, lost: before } = this;
    if (leader?.address !== this.address) return false;
    const isLost = leader.epoch !== undefined && (isSilent || isUnreachable);
    this.lost = isLost ? { address: leader.address, epoch: leader.epoch } : undefined;
    return isLost && leader.hadSession && leader.epoch !== before?.epoch && !isSilent;
  }

  /**
   * Goes on with the round, also after a named leader that is gone.
   * @param except - Address to skip, unless it is the only one.
   */
  private advance(except: string | undefined): void {
    const count = this.addresses.length;
    const index = this.addresses.indexOf(this.position) + (this.isReversed ? count - 1 : 1);
    this.position = this.addresses[index % count] ?? this.position;
    this.address = this.position;
    if (this.address === except && count > 1) this.advance(undefined);
  }

  /**
   * Returns true for an address that the agent may dial because a coordinator has named it. In a
   * cluster without TLS, where no certificate shows who answers, only a configured address or one
   * of this machine. Other coordinators name a dead leader until its lease ends in the store, so
   * after a silence only a newer epoch shows that the leader is back.
   */
  private mayFollow({ address, epoch }: NamedLeader): boolean {
    if (this.redirects >= MAX_REDIRECTS || address === this.address) return false;
    const silence = this.silences.get(address);
    if (silence !== undefined && !isNewer(epoch, silence.epoch)) return false;
    return isDialable(address, this.configured);
  }

  private list(known: readonly StoredCoordinator[]): readonly string[] {
    const learnt = known
      .map(({ address }) => address)
      .filter((address) => isDialable(address, this.configured));
    return [...new Set([...this.configured, ...learnt])];
  }
}

/**
 * Adds the coordinators that the cluster has named to those that the agent knows: each id once with
 * its newest address, the newest first. A coordinator that is missing in the message may only be
 * down, so it stays until newer ones displace it.
 * @returns `known` itself when nothing changes.
 */
export function mergeKnown(
  known: readonly StoredCoordinator[],
  named: readonly StoredCoordinator[],
): readonly StoredCoordinator[] {
  const valid = named.filter(({ id, address }) => id !== '' && URL.canParse(address));
  const ids = new Set(valid.map(({ id }) => id));
  const merged = [
    ...valid.map(({ id, address }) => ({ id, address })),
    ...known.filter(({ id }) => !ids.has(id)),
  ].slice(0, MAX_KNOWN);
  const isSame =
    merged.length === known.length &&
    merged.every(({ id, address }, index) => {
      const before = known[index];
      return before?.id === id && before.address === address;
    });
  return isSame ? known : merged;
}

function isNewer(epoch: bigint | undefined, than: bigint | undefined): boolean {
  return epoch !== undefined && than !== undefined && epoch > than;
}

const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/;

function isDialable(address: string, configured: readonly string[]): boolean {
  if (configured.includes(address)) return true;
  const url = URL.canParse(address) ? new URL(address) : undefined;
  const first = configured[0];
  if (url === undefined || first === undefined || url.protocol !== new URL(first).protocol)
    return false;
  return url.protocol === 'https:' || LOOPBACK.test(url.hostname);
}
