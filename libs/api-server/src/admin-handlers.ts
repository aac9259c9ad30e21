import { create } from '@bufbuild/protobuf';
import type { HandlerContext } from '@connectrpc/connect';
import {
  AcceptRestoredStateResponseSchema,
  BackupChunkSchema,
  SnapshotChunkSchema,
  StepDownResponseSchema,
  type AcceptRestoredStateResponse,
  type BackupChunk,
  type SnapshotChunk,
  type StepDownRequest,
  type StepDownResponse,
} from '@cloudless/api';
import { CloudlessError, errorFields, hasErrorReason, sleep } from '@cloudless/base';
import { StorageFault } from '@cloudless/cluster-state';
import { CallLimit } from './access/call-limit.js';
import type { AuditEntry } from './audit/audit-log.js';
import type { ApiServerDeps } from './ports.js';

/** Longest time in which a client reads a snapshot, milliseconds. */
const MAX_SNAPSHOT_MS = 120_000;
/**
 * Most snapshots that are read at the same time. While one is read, the coordinator keeps the former
 * record of each changed record.
 */
const MAX_SNAPSHOTS = { most: 3, mostOfUser: 1, noun: 'snapshots' };

/** Handlers of AdminService. */
export class AdminHandlers {
  private readonly snapshots: CallLimit;

  constructor(
    private readonly deps: Pick<
      ApiServerDeps,
      'state' | 'log' | 'whatIf' | 'clock' | 'getCaller' | 'coordinatorId' | 'handOver'
    >,
  ) {
    this.snapshots = new CallLimit(deps, MAX_SNAPSHOTS);
  }

  /**
   * Streams a backup of the store as fast as the client reads. No store transaction stays open
   * between two chunks, so a slow client does not block the store.
   */
  async *backup(entry: AuditEntry, { signal }: HandlerContext): AsyncGenerator<BackupChunk> {
    await this.recordBackup(entry);
    const chunks = this.deps.state.backup();
    try {
      let next = await chunks.next();
      for (; next.done !== true && !signal.aborted; next = await chunks.next()) {
        yield create(BackupChunkSchema, { data: next.value });
      }
      if (next.done !== true) return;
      const { revision, entries, bytes, sha256 } = next.value;
      this.deps.log.info('backup was read', { revision: String(revision), entries, bytes, sha256 });
    } finally {
      await chunks.return(undefined as never);
    }
  }

  /**
   * Writes the audit record before the backup begins. A log message takes the place of the audit
   * record when the store can no longer write because the data file was deleted or the store has no
   * space: the backup may be the only way to save the state, and is needed before space is made.
   */
  private async recordBackup(entry: AuditEntry): Promise<void> {
    try {
      await entry.recordStart({});
    } catch (reason) {
      const cause = describeRefusedWrites(reason);
      if (cause === undefined) throw reason;
      const { rpc, principal, credentialId, address, traceId } = entry.facts;
      this.deps.log.warn(`audit record not written: ${cause}`, {
        ...{ rpc, principal, credentialId, address, traceId },
        ...errorFields(reason),
      });
    }
  }

  /**
   * Streams a snapshot of one revision for simulations, as fast as the client reads. Other work runs
   * after each chunk.
   * @throws kind `exhausted` when the client takes longer than 2 minutes, and while another snapshot
   *   of the user, or three others, are read.
   */
  async *snapshot(
    context: Partial<HandlerContext> & Pick<HandlerContext, 'signal'>,
  ): AsyncGenerator<SnapshotChunk> {
    const { clock, whatIf } = this.deps;
    const end = this.snapshots.begin(context);
    const chunks = whatIf.encodeSnapshot();
    let isLate = false;
    const timer = clock.setTimer(MAX_SNAPSHOT_MS, () => {
      isLate = true;
      chunks.return(undefined);
    });
    try {
      for (const data of chunks) {
        yield create(SnapshotChunkSchema, { data });
        await sleep(clock, 0, context.signal);
      }
    } finally {
      end();
      timer.cancel();
    }
    if (isLate)
      throw new CloudlessError(
        'SLOW_READER',
        `the snapshot was not read within ${MAX_SNAPSHOT_MS / 1_000} s; save it on a machine closer to the coordinator`,
      );
  }

  /**
   * Accepts the restored state of a store that went back in time, so that orders are sent again. A
   * repeated call, or a call without a restored state, changes nothing.
   */
  async acceptRestoredState(entry: AuditEntry): Promise<AcceptRestoredStateResponse> {
    const { state, log } = this.deps;
    if (state.storeRolledBack !== undefined) await entry.recordStart({});
    const accepted = await state.acceptRestoredState();
    const { epoch, orderRevision } = accepted ?? state;
    if (accepted !== undefined)
      log.warn('restored state accepted', {
        epoch: String(epoch),
        orderRevision: String(orderRevision),
      });
    return create(AcceptRestoredStateResponseSchema, {
      accepted: accepted !== undefined,
      epoch,
      orderRevision,
    });
  }

  /**
   * Hands the leadership over to another coordinator.
   * @throws kind `precondition` when no other coordinator runs, or when this leadership has another
   *   epoch than the expected one, `unavailable` when none has taken over in time.
   */
  async stepDown(
    { expectedEpoch }: Pick<StepDownRequest, 'expectedEpoch'>,
    entry: AuditEntry,
  ): Promise<StepDownResponse> {
    const { state, handOver, coordinatorId } = this.deps;
    if (expectedEpoch !== undefined && expectedEpoch !== state.epoch) {
      throw new CloudlessError(
        'precondition',
        `the leadership with epoch ${expectedEpoch} was to end, but ${coordinatorId === undefined ? 'this coordinator' : `coordinator ${coordinatorId}`} leads with epoch ${state.epoch} and goes on; look at the leader and repeat the call for its epoch`,
      );
    }
    const others = [...state.view().coordinators()].filter(
      ({ value }) => value.id !== coordinatorId,
    );
    if (handOver === undefined || others.length === 0) {
      throw new CloudlessError(
        'precondition',
        'no other coordinator runs that could lead; start another one with --state etcd first',
      );
    }
    await entry.recordStart({});
    const successor = await handOver();
    if (successor === undefined) {
      throw new CloudlessError(
        'unavailable',
        'this coordinator stepped down, and no other one has taken over yet',
      );
    }
    return create(StepDownResponseSchema, {
      leaderId: successor.coordinatorId,
      leaderAddress: successor.address,
      epoch: successor.epoch,
    });
  }
}

/**
 * Returns why the store takes no audit record of a backup. Undefined for failures after which no
 * backup may be read without a record.
 */
function describeRefusedWrites(reason: unknown): string | undefined {
  if (reason instanceof StorageFault && reason.lost === 'dataFile') return 'the data file is lost';
  return hasErrorReason(reason, 'STORE_FULL') ? 'the state store is full' : undefined;
}
