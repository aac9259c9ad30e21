import { create } from '@bufbuild/protobuf';
import { LeaderLeaseRecordSchema } from '@cloudless/api/store';
import {
  CloudlessError,
  backoffDelayMs,
  errorFields,
  errorKindOf,
  sleep,
  type Clock,
  type Log,
  type Random,
  type StopSignal,
} from '@cloudless/base';
import type { LeaseId, Revision, StateStore } from '@cloudless/state-store';
import { LEADER_KEY, encodeRecord, toKey } from '../records/records.js';
import type { Leadership } from './leadership.js';
import { ACT_AFTER_RENEWAL_MS, CALL_LIMIT_MS, LEADER_LEASE_MS } from './election-timing.js';

/** The calls of the store that an election makes. */
export type ElectionStore = Pick<
  StateStore,
  'get' | 'txn' | 'revision' | 'grantLease' | 'keepAlive' | 'revokeLease'
>;

/**
 * A store whose calls reject with kind `deadline` when they are not answered within
 * {@link CALL_LIMIT_MS}. The outcome is then unknown. Renewals keep the limit of the store, because
 * at most one may be in flight.
 */
export function withCallLimit(store: ElectionStore, clock: Clock): ElectionStore {
  const limit = <Result>(call: Promise<Result>): Promise<Result> =>
    new Promise((resolve, reject) => {
      const timer = clock.setTimer(CALL_LIMIT_MS, () =>
        reject(new CloudlessError('deadline', 'the state store did not answer in time')),
      );
      void call.then(resolve, reject).finally(() => timer.cancel());
    });
  return {
    get: (key) => limit(store.get(key)),
    txn: (compares, operations) => limit(store.txn(compares, operations)),
    revision: () => limit(store.revision()),
    grantLease: (ttlMs) => limit(store.grantLease(ttlMs)),
    keepAlive: (lease) => store.keepAlive(lease),
    revokeLease: (lease) => limit(store.revokeLease(lease)),
  };
}

/** Who stands for election. */
export interface CandidateIdentity {
  /** URL at which agents, clients and other coordinators reach this coordinator. */
  readonly address: string;
  /** Id of this coordinator, as in `/controller/<id>`. */
  readonly coordinatorId: string;
}

export interface CampaignDeps {
  readonly store: ElectionStore;
  readonly leadership: Leadership;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  /** Id of this process; another one after each start. */
  readonly holder: string;
  readonly identity: CandidateIdentity;
  /** Ends attempts to learn an unknown outcome. */
  readonly signal: StopSignal;
}

/** A campaign that was won: the leader record and the lease record are in the store. */
export interface WonCampaign {
  readonly epoch: bigint;
  /** Revision of the leader record. */
  readonly revision: Revision;
  readonly lease: LeaseId;
  /** Monotonic time at which the request for the lease was sent. */
  readonly sentAtMs: number;
}

/** A lease for a campaign, which nobody sees before its transaction. */
export type GrantedLease = Pick<WonCampaign, 'lease' | 'sentAtMs'>;

/** @throws The errors of the store. */
export async function grantLeaderLease({
  store,
  clock,
}: Pick<CampaignDeps, 'store' | 'clock'>): Promise<GrantedLease> {
  const sentAtMs = clock.now();
  return { lease: await store.grantLease(LEADER_LEASE_MS), sentAtMs };
}

/**
 * Takes the leadership when nobody holds the leader lease: one transaction writes the lease record
 * and the leader record. The view must show the newest revision.
 * @param granted - Ends when the campaign is not won.
 * @returns Undefined when another coordinator was faster, or the store was too slow. Nothing of
 *   this campaign takes effect later.
 * @throws The errors of the store, when certainly nothing was committed.
 */
export async function campaign(
  deps: CampaignDeps,
  { lease, sentAtMs }: GrantedLease,
): Promise<WonCampaign | undefined> {
  const { clock } = deps;
  const won = await commitCampaign(deps, lease);
  if (won !== undefined && clock.now() < sentAtMs + ACT_AFTER_RENEWAL_MS)
    return { ...won, lease, sentAtMs };
  await revoke(deps, lease);
  return undefined;
}

/** Ends a lease. A failure is only logged: the lease then ends by itself. */
export async function revoke(
  { store, log }: Pick<CampaignDeps, 'store' | 'log'>,
  lease: LeaseId,
): Promise<void> {
  try {
    await store.revokeLease(lease);
  } catch (reason) {
    log.warn('leader lease could not be revoked', errorFields(reason));
  }
}

type Committed = Pick<WonCampaign, 'epoch' | 'revision'>;

async function commitCampaign(deps: CampaignDeps, lease: LeaseId): Promise<Committed | undefined> {
  const { store, leadership, holder, identity } = deps;
  const { before, epoch, record } = leadership.createNextRecord(identity);
  const leaseRecord = create(LeaderLeaseRecordSchema, { epoch, holder, ...identity });
  try {
    const { revision } = await store.txn(
      [
        { key: LEASE_RECORD_KEY, is: 'absent' },
        { key: LEADER_RECORD_KEY, is: before?.revision ?? 'absent' },
      ],
      [
        {
          put: LEASE_RECORD_KEY,
          value: encodeRecord('leaderlease', leaseRecord).bytes,
          lease,
        },
        { put: LEADER_RECORD_KEY, value: encodeRecord('leader', record).bytes },
      ],
    );
    return { epoch, revision };
  } catch (reason) {
    switch (errorKindOf(reason)) {
      case 'conflict': // another coordinator was faster
      case 'notFound': // the lease has ended meanwhile
        return undefined;
      case 'unavailable':
      case 'deadline':
      case 'internal':
        return learnOutcome(deps, lease, epoch);
      default:
        await revoke(deps, lease);
        throw reason;
    }
  }
}

/**
 * Decides a campaign whose transaction had no answer. The lease tells whose the lease record is,
 * because ids of leases are never reused. When there is no lease record, the transaction may still
 * be on its way: it can no longer be committed once its lease was revoked.
 */
async function learnOutcome(
  deps: CampaignDeps,
  lease: LeaseId,
  epoch: bigint,
): Promise<Committed | undefined> {
  const { store, clock, random, log, signal } = deps;
  for (let failures = 1; !signal.aborted; failures += 1) {
    try {
      const entry = await store.get(LEASE_RECORD_KEY);
      if (entry?.lease === lease) return { epoch, revision: entry.modRevision };
      if (entry !== undefined) return undefined; // its campaign has changed the leader record
      await store.revokeLease(lease);
      return undefined;
    } catch (reason) {
      log.warn('outcome of the campaign is not known yet', errorFields(reason));
      await sleep(clock, backoffDelayMs(RETRY_POLICY, failures, random), signal).catch(
        () => undefined,
      );
    }
  }
  return undefined;
}

const LEASE_RECORD_KEY = toKey('leaderlease', LEADER_KEY);
const LEADER_RECORD_KEY = toKey('leader', LEADER_KEY);
const RETRY_POLICY = { firstMs: 50, maxMs: 1_000, jitter: 0.5 };
