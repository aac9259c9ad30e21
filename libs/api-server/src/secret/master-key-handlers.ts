import { clone, create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  GetMasterKeyInfoResponseSchema,
  MasterKeySchema,
  MasterKey_State as KeyState,
  RotateMasterKeyResponseSchema,
  SecretsService,
  type GetMasterKeyInfoResponse,
  type MasterKey,
  type RotateMasterKeyRequest,
  type RotateMasterKeyResponse,
} from '@cloudless/api';
import {
  MasterKeyRecordSchema,
  MasterKeyRecord_State as State,
  RequestRecordSchema,
  type MasterKeyRecord,
} from '@cloudless/api/store';
import {
  CloudlessError,
  definedFields,
  errorMessageOf,
  hasErrorReason,
  type StopSignal,
} from '@cloudless/base';
import type { ClusterView } from '@cloudless/cluster-state';
import type { AuditEntry } from '../audit/audit-log.js';
import { runIdempotent, type MutationResult } from '../mutation/idempotent-mutation.js';
import { retryOnConflict } from '../mutation/retry-on-conflict.js';
import type { SecretHandlersDeps } from './secret-handlers.js';
import { createRotationStarted, type MasterKeyReconciler } from './master-key-reconciler.js';
import {
  countOtherVersions,
  countVersions,
  findRotation,
  listMasterKeys,
} from './master-key-steps.js';
import { RotationWait } from './rotation-wait.js';
import { createMasterKeyId, isActive } from './secret-keys.js';

const { rotateMasterKey } = SecretsService.method;
const SUBJECT = 'the master keys';

export interface MasterKeyHandlersDeps extends SecretHandlersDeps {
  readonly reconciler: Pick<MasterKeyReconciler, 'problem'>;
}

/** Handlers of the calls of SecretsService about master keys. */
export class MasterKeyHandlers {
  constructor(private readonly deps: MasterKeyHandlersDeps) {}

  /**
   * Begins a rotation, or joins the one under way, and waits for its end. The reconciler of the leader
   * carries the rotation out, with and without this call.
   * @param signal - Ends the wait, not the rotation.
   * @throws reason `NO_SECRETS_KEY`; kind `precondition` when a damaged version keeps the rotation
   *   from its end; `LEADERSHIP_LOST`.
   */
  async rotateMasterKey(
    request: RotateMasterKeyRequest,
    entry: AuditEntry,
    signal: StopSignal,
  ): Promise<RotateMasterKeyResponse> {
    const { state, mutex, keys, reconciler } = this.deps;
    await mutex.run(SUBJECT, () => keys.openOrCreate(this.deps));
    const wait = new RotationWait(state, () => reconciler.problem);
    try {
      const call = { request, entry, subject: SUBJECT };
      const begun = await runIdempotent(this.deps, rotateMasterKey, call, () =>
        this.begin(request),
      );
      // The answer of an earlier call with this request id.
      if (isComplete(begun)) return begun;
      await wait.untilEnd(signal);
      return await this.storeAnswer(request, this.createAnswer(begun, wait));
    } finally {
      wait.close();
    }
  }

  /** Returns the master keys and the progress, also without the key-encryption key. */
  async getMasterKeyInfo(): Promise<GetMasterKeyInfoResponse> {
    const problem = await this.findProblem();
    const view = this.deps.state.view();
    const counts = countVersions(view);
    const rotation = findRotation(view)?.value;
    return create(GetMasterKeyInfoResponseSchema, {
      keys: listMasterKeys(view).map(({ value }) => presentKey(value, counts)),
      available: problem === '',
      problem,
      rotating: rotation !== undefined,
      remaining:
        rotation?.reEncryptAll === true ? BigInt(countOtherVersions(view, rotation.id)) : 0n,
    });
  }

  /**
   * Returns the response of a call whose rotation has begun and not ended: without the id of a master
   * key.
   */
  private async begin(
    request: RotateMasterKeyRequest,
  ): Promise<MutationResult<RotateMasterKeyResponse>> {
    const { state, keys, random, clock } = this.deps;
    const key = await keys.createKey(createMasterKeyId(random), random);
    const current = findRotation(state.view());
    if (current === undefined) {
      key.createdAt = timestampFromMs(clock.wallTime());
      key.reEncryptAll = request.reEncryptAll;
      const transaction = state
        .transaction()
        .require('masterkey', key.id, 'absent')
        .put('masterkey', key.id, key)
        .event(createRotationStarted(key, request.requestId));
      return { response: create(RotateMasterKeyResponseSchema, { began: true }), transaction };
    }
    const response = create(RotateMasterKeyResponseSchema, { began: false });
    // Commits nothing, which fails while a restored state is not accepted: no step follows then.
    if (!request.reEncryptAll || current.value.reEncryptAll)
      return { response, transaction: state.transaction() };
    // The rotation under way gets what this call asks for on top.
    const next = clone(MasterKeyRecordSchema, current.value);
    next.reEncryptAll = true;
    const transaction = state
      .transaction()
      .require('masterkey', next.id, current)
      .put('masterkey', next.id, next);
    return { response, transaction };
  }

  private createAnswer(
    { began }: RotateMasterKeyResponse,
    wait: RotationWait,
  ): RotateMasterKeyResponse {
    const view = this.deps.state.view();
    const masterKeyId = getActiveId(view);
    return create(RotateMasterKeyResponseSchema, {
      ...{ masterKeyId, began },
      reEncrypted: BigInt(wait.reEncrypted),
      remaining: BigInt(countOtherVersions(view, masterKeyId)),
      deletedKeys: wait.deletedKeys,
    });
  }

  /** Stores the answer for repeated calls. Returns the stored answer when a repeated call has one. */
  private storeAnswer(
    { requestId }: RotateMasterKeyRequest,
    answer: RotateMasterKeyResponse,
  ): Promise<RotateMasterKeyResponse> {
    const { state } = this.deps;
    return retryOnConflict({ ...this.deps, subject: SUBJECT }, async () => {
      const stored = requestId === '' ? undefined : state.view().request(requestId);
      if (stored === undefined) return answer;
      const earlier = fromBinary(RotateMasterKeyResponseSchema, stored.value.response);
      if (isComplete(earlier)) return earlier;
      const next = clone(RequestRecordSchema, stored.value);
      next.response = toBinary(RotateMasterKeyResponseSchema, answer);
      await state.commit(
        state.transaction().require('request', requestId, stored).put('request', requestId, next),
      );
      return answer;
    });
  }

  /** Returns why this coordinator cannot decrypt the keys; empty when it can. */
  private async findProblem(): Promise<string> {
    try {
      await this.deps.keys.open(this.deps.state.view());
      return '';
    } catch (reason) {
      if (!hasErrorReason(reason, 'NO_SECRETS_KEY')) throw reason;
      return errorMessageOf(reason);
    }
  }
}

/** Returns false for the stored response of a call that has not ended. */
function isComplete({ masterKeyId }: RotateMasterKeyResponse): boolean {
  return masterKeyId !== '';
}

function getActiveId(view: ClusterView): string {
  for (const { value } of view.masterKeys()) if (isActive(value)) return value.id;
  throw new CloudlessError('internal', 'the cluster has no active master key');
}

function presentKey(record: MasterKeyRecord, counts: ReadonlyMap<string, number>): MasterKey {
  const { id, state, createdAt, provider, keyEncryptionId } = record;
  return create(MasterKeySchema, {
    ...{ id, provider, keyEncryptionId },
    state: API_STATES[state],
    ...definedFields({ createdAt }),
    versionCount: BigInt(counts.get(id) ?? 0),
  });
}

const API_STATES: Readonly<Record<State, KeyState>> = {
  [State.PENDING]: KeyState.PENDING,
  [State.ACTIVE]: KeyState.ACTIVE,
  [State.RETIRING]: KeyState.RETIRING,
};
