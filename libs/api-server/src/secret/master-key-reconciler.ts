import { clone, toBinary } from '@bufbuild/protobuf';
import { Event_Category as Category, Event_Severity as Severity } from '@cloudless/api';
import {
  MasterKeyRecordSchema,
  MasterKeyRecord_State as State,
  SecretRecordSchema,
  SecretValueRecordSchema,
  type MasterKeyRecord,
  type SecretRecord,
  type SecretValueRecord,
} from '@cloudless/api/store';
import {
  WorkQueue,
  assertNever,
  errorKindOf,
  errorMessageOf,
  hasErrorReason,
  logFailure,
  noMeter,
  type Log,
  type Meter,
  type WorkResult,
} from '@cloudless/base';
import {
  LeadershipLostError,
  RestoredStateError,
  toValueKeyId,
  type EventInit,
  type RecordChange,
  type Stored,
  type Transaction,
} from '@cloudless/cluster-state';
import { reEncryptSecret, type MasterKey } from '@cloudless/secrets';
import type { ApiServerDeps } from '../ports.js';
import {
  MAX_STEP_WRITES,
  planMasterKeyStep,
  type MasterKeyStep,
  type VersionBatch,
} from './master-key-steps.js';
import type { SecretKeyRing, SecretKeys } from './secret-keys.js';
import { toSecretKey } from './secret-lookup.js';
import { toValueRecord } from './secret-versions.js';

export type MasterKeyReconcilerDeps = Pick<ApiServerDeps, 'state' | 'clock' | 'random'> & {
  readonly keys: SecretKeys;
  readonly log: Log;
  readonly meter?: Meter | undefined;
};

/**
 * Bytes of a value and its secret in one commit at most: the limit of a store, 1 MiB, without the
 * keys and the compares. A larger pair takes two commits.
 */
const MAX_PAIR_BYTES = 1024 * 1024 - 16 * 1024;
/** Writes of the smallest step: a secret and one of its values. */
const MIN_STEP_WRITES = 2;
/** Damaged versions that a message names at most. */
const MAX_NAMED = 10;

type ReEncryptStep = Extract<MasterKeyStep, { kind: 'reEncrypt' }>;

/** A version that is encrypted again, with the record that replaces its value. */
interface NextValue {
  readonly secret: Stored<SecretRecord>;
  readonly version: number;
  readonly read: Stored<SecretValueRecord>;
  /** Absent: the value is encrypted with the new key already. */
  readonly next?: SecretValueRecord;
}

/**
 * Carries rotations of the master key out, one step in one commit, and deletes keys that no version
 * needs. Level-triggered and without state of its own, so a rotation continues after a crash or a
 * change of the leader at any step. Only the leader may run the reconciler.
 */
export class MasterKeyReconciler {
  private readonly queue: WorkQueue<'keys'>;
  private readonly unsubscribe: () => void;
  /** The secret at which the last step has ended. */
  private after: string | undefined;
  private maxWrites = MAX_STEP_WRITES;
  /** Versions that cannot be decrypted: `<uid>/<version>`. */
  private readonly damaged = new Set<string>();
  private blockedBy: string | undefined;
  private hasWarned = false;

  constructor(private readonly deps: MasterKeyReconcilerDeps) {
    this.queue = new WorkQueue<'keys'>({
      clock: deps.clock,
      random: deps.random,
      metrics: { meter: deps.meter ?? noMeter, loop: 'master_keys' },
      handle: () => this.reconcile(),
      onError: (_key, reason) => logFailure(deps.log, 'master key reconcile failed', reason),
      backoff: { firstMs: 100, maxMs: 30_000, jitter: 0.2 },
    });
    this.queue.wake('keys');
    this.unsubscribe = deps.state.subscribe((changes) => {
      if (changes.some((change) => this.concerns(change))) this.queue.wake('keys');
    });
  }

  /** Why a rotation cannot end, and what to do, for people; undefined when nothing keeps it. */
  get problem(): string | undefined {
    return this.blockedBy;
  }

  async close(): Promise<void> {
    this.unsubscribe();
    await this.queue.stop();
  }

  /** Runs one pass. */
  async reconcile(): Promise<WorkResult> {
    const { state, log } = this.deps;
    // The change of the cluster record wakes this loop when an operator accepts the state.
    if (state.storeRolledBack !== undefined) return { kind: 'done' };
    const step = planMasterKeyStep(state.view(), {
      after: this.after,
      maxWrites: this.maxWrites,
      isDamaged: ({ uid }, version) => this.damaged.has(toValueKeyId(uid, version)),
    });
    if (step.kind !== 'blocked') this.blockedBy = undefined;
    if (step.kind !== 'reEncrypt') this.after = undefined;
    if (step.kind !== 'none') log.debug('master key step planned', describeStep(step));
    switch (step.kind) {
      case 'none':
        return { kind: 'done' };
      case 'activate': {
        // A key that this coordinator cannot decrypt must not become the active key.
        const ring = await this.openKeys();
        if (ring === undefined) return { kind: 'done' };
        return this.commit(putActivation(state.transaction(), step), step);
      }
      case 'reEncrypt': {
        const ring = await this.openKeys();
        return ring === undefined ? { kind: 'done' } : this.reEncrypt(step, ring);
      }
      case 'blocked':
        return this.reportBlocked(step.versions);
      case 'deleteKeys':
        return this.commit(putDeletion(state.transaction(), step), step);
      default:
        return assertNever(step);
    }
  }

  private concerns(change: RecordChange): boolean {
    switch (change.kind) {
      case 'masterkey':
      case 'meta':
        return true;
      case 'secret':
        // Only a version less can make a step possible.
        return change.before !== undefined && this.hasOldVersion(change.before);
      default:
        return false;
    }
  }

  private hasOldVersion({ versions }: SecretRecord): boolean {
    const view = this.deps.state.view();
    return versions.some(
      ({ masterKeyId }) => view.masterKey(masterKeyId)?.value.state !== State.ACTIVE,
    );
  }

  /** Returns undefined, and warns once, when this coordinator cannot decrypt the keys. */
  private async openKeys(): Promise<SecretKeyRing | undefined> {
    const { keys, state, log } = this.deps;
    try {
      return await keys.require(state.view());
    } catch (reason) {
      if (!hasErrorReason(reason, 'NO_SECRETS_KEY')) throw reason;
      if (!this.hasWarned)
        log.warn('the rotation of the master key waits for the key-encryption key', {
          reason: errorMessageOf(reason),
        });
      this.hasWarned = true;
      return undefined;
    }
  }

  private async reEncrypt(step: ReEncryptStep, ring: SecretKeyRing): Promise<WorkResult> {
    const to = ring.get(step.to.value.id);
    if (to === undefined) return { kind: 'again' };
    const wanted = step.batches.flatMap(({ secret, versions }) =>
      versions.map((version) => ({ secret, version })),
    );
    const results = await Promise.all(wanted.map((item) => this.toNextValue(item, { to, ring })));
    const values = results.filter((result) => result !== undefined);
    if (values.length < results.length) {
      await this.noteDamaged(wanted.filter((_item, index) => results[index] === undefined));
      return { kind: 'again' };
    }
    const transaction = this.deps.state
      .transaction()
      // Conflicts with whatever changes the active key meanwhile.
      .require('masterkey', to.id, step.to);
    const result = await this.commit(putValues(transaction, values, to.id), step);
    // The last secret may have more versions.
    const before = step.batches.at(-2);
    if (before !== undefined) this.after = toSecretKey(before.secret.value);
    return result;
  }

  /** Returns undefined when there is no such value, or the value cannot be decrypted. */
  private async toNextValue(
    { secret, version }: Pick<NextValue, 'secret' | 'version'>,
    { to, ring }: { readonly to: MasterKey; readonly ring: SecretKeyRing },
  ): Promise<NextValue | undefined> {
    const { namespace, name, uid } = secret.value;
    const { state, random } = this.deps;
    const read = await state.readRecord('secretvalue', toValueKeyId(uid, version));
    if (read === undefined) return undefined;
    if (read.value.masterKeyId === to.id) return { secret, version, read };
    const from = ring.get(read.value.masterKeyId);
    const context = { namespace, name, uid, version };
    const envelope = from && reEncryptSecret({ from, to }, context, read.value, random);
    return envelope && { secret, version, read, next: toValueRecord(envelope) };
  }

  /** Notes the versions that cannot be decrypted, unless a change of their secret is the reason. */
  private async noteDamaged(
    items: readonly Pick<NextValue, 'secret' | 'version'>[],
  ): Promise<void> {
    const { state } = this.deps;
    await state.waitForNewest();
    for (const { secret, version } of items) {
      const current = state.view().secret(toSecretKey(secret.value));
      if (current?.revision === secret.revision)
        this.damaged.add(toValueKeyId(secret.value.uid, version));
    }
  }

  /** Reports, once for the same versions, that a rotation cannot end. */
  private async reportBlocked(versions: readonly VersionBatch[]): Promise<WorkResult> {
    const { state, log } = this.deps;
    const problem = describeDamage(versions);
    if (this.blockedBy === problem) return { kind: 'done' };
    this.blockedBy = problem;
    log.error('rotation of the master key blocked', { reason: problem });
    const transaction = state.transaction().event({
      severity: Severity.WARNING,
      category: Category.SECURITY,
      ...{ reason: 'MasterKeyRotationBlocked', message: problem },
    });
    return this.commit(transaction, { kind: 'none' });
  }

  /**
   * Commits a step. A smaller step follows after a conflict, because a change of any secret of a
   * step makes the whole step conflict.
   */
  private async commit(transaction: Transaction, step: MasterKeyStep): Promise<WorkResult> {
    const { state, log } = this.deps;
    try {
      await state.commit(transaction);
    } catch (reason) {
      if (reason instanceof LeadershipLostError || reason instanceof RestoredStateError)
        return { kind: 'done' };
      if (errorKindOf(reason) !== 'conflict') throw reason;
      this.maxWrites = Math.max(MIN_STEP_WRITES, Math.floor(this.maxWrites / 2));
      return { kind: 'again' };
    }
    this.maxWrites = Math.min(MAX_STEP_WRITES, this.maxWrites * 2);
    if (step.kind === 'none') return { kind: 'done' };
    log.info('master keys advanced', describeStep(step));
    return { kind: 'again' };
  }
}

/** Returns the event of the start of a rotation. */
export function createRotationStarted(key: MasterKeyRecord, requestId: string): EventInit {
  const text = key.reEncryptAll
    ? 'all versions of secrets are encrypted again with this key'
    : 'new versions of secrets are encrypted with this key';
  return {
    ...createKeyEvent('MasterKeyRotationStarted', `master key ${key.id} was created; ${text}`),
    requestId,
  };
}

function putActivation(
  transaction: Transaction,
  { key, former }: Extract<MasterKeyStep, { kind: 'activate' }>,
): Transaction {
  const { id } = key.value;
  const next = clone(MasterKeyRecordSchema, key.value);
  next.state = State.ACTIVE;
  transaction.require('masterkey', id, key).put('masterkey', id, next);
  for (const stored of former) {
    const retiring = clone(MasterKeyRecordSchema, stored.value);
    retiring.state = State.RETIRING;
    transaction.require('masterkey', retiring.id, stored).put('masterkey', retiring.id, retiring);
  }
  if (next.reEncryptAll) return transaction;
  return transaction.event(
    createKeyEvent(
      'MasterKeyRotated',
      `master key ${id} encrypts new versions of secrets; older keys are kept until no version needs them`,
    ),
  );
}

function putValues(
  transaction: Transaction,
  values: readonly NextValue[],
  masterKeyId: string,
): Transaction {
  const secrets = new Map<string, { read: Stored<SecretRecord>; next: SecretRecord }>();
  for (const { secret, version, read, next: value } of values) {
    const { uid } = secret.value;
    const known = secrets.get(uid) ?? {
      read: secret,
      next: clone(SecretRecordSchema, secret.value),
    };
    secrets.set(uid, known);
    const described = known.next.versions.find((kept) => kept.version === version);
    if (described !== undefined) described.masterKeyId = masterKeyId;
    const id = toValueKeyId(uid, version);
    transaction.require('secretvalue', id, read);
    if (value !== undefined) transaction.put('secretvalue', id, value);
  }
  for (const { read, next } of secrets.values()) {
    const key = toSecretKey(next);
    transaction.require('secret', key, read);
    // The next step finds the value with its new key, and changes only the secret.
    if (!isTooLarge(values, next)) transaction.put('secret', key, next);
  }
  return transaction;
}

/** Returns true when one value and its secret are too large for one commit. */
function isTooLarge(values: readonly NextValue[], secret: SecretRecord): boolean {
  const [only] = values;
  if (values.length !== 1 || only?.next === undefined) return false;
  const valueBytes = toBinary(SecretValueRecordSchema, only.next).length;
  return valueBytes + toBinary(SecretRecordSchema, secret).length > MAX_PAIR_BYTES;
}

function putDeletion(
  transaction: Transaction,
  { keys, endOf }: Extract<MasterKeyStep, { kind: 'deleteKeys' }>,
): Transaction {
  const ids = keys.map(({ value }) => value.id).join(', ');
  for (const key of keys)
    transaction.require('masterkey', key.value.id, key).delete('masterkey', key.value.id);
  if (endOf === undefined)
    return transaction.event(
      createKeyEvent(
        'MasterKeyDeleted',
        `deleted, because no version of a secret needs the key: master key ${ids}`,
      ),
    );
  return transaction
    .require('masterkey', endOf.value.id, endOf)
    .event(
      createKeyEvent(
        'MasterKeyRotated',
        `master key ${endOf.value.id} encrypts all versions of secrets; deleted master keys: ${ids}`,
      ),
    );
}

function createKeyEvent(reason: string, message: string): EventInit {
  return { severity: Severity.INFO, category: Category.SECURITY, reason, message };
}

function describeDamage(batches: readonly VersionBatch[]): string {
  const names = batches.flatMap(({ secret, versions }) =>
    versions.map((version) => `version ${version} of secret "${toSecretKey(secret.value)}"`),
  );
  const more = names.length > MAX_NAMED ? ` and ${names.length - MAX_NAMED} more` : '';
  return `the rotation of the master key cannot end: ${names.slice(0, MAX_NAMED).join(', ')}${more} cannot be decrypted, because the record was changed or damaged; delete the secret, or restore a backup`;
}

/** Returns what a step has done, for the log. */
function describeStep(step: MasterKeyStep): Readonly<Record<string, string | number>> {
  switch (step.kind) {
    case 'activate':
      return { step: step.kind, masterKeyId: step.key.value.id };
    case 'reEncrypt':
      return {
        step: step.kind,
        masterKeyId: step.to.value.id,
        versions: step.batches.reduce((sum, { versions }) => sum + versions.length, 0),
      };
    case 'deleteKeys':
      return { step: step.kind, count: step.keys.length };
    default:
      return { step: step.kind };
  }
}
