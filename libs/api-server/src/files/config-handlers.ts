import { clone, create, equals } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  ConfigVersionSchema,
  ConfigsService,
  DeleteConfigResponseSchema,
  Event_Category as Category,
  Event_Severity as Severity,
  resolveNamespace,
  type Config,
  type CreateConfigRequest,
  type DeleteConfigRequest,
  type DeleteConfigResponse,
  type UpdateConfigRequest,
} from '@cloudless/api';
import {
  ConfigRecordSchema,
  ConfigValueRecordSchema,
  type ConfigRecord,
} from '@cloudless/api/store';
import { CloudlessError, InvalidInputError, randomHex } from '@cloudless/base';
import {
  putFilesGuard,
  toValueKeyId,
  type ClusterView,
  type EventInit,
  type Transaction,
} from '@cloudless/cluster-state';
import type { AuditEntry } from '../audit/audit-log.js';
import {
  runIdempotent,
  type MutationDeps,
  type MutationResult,
} from '../mutation/idempotent-mutation.js';
import {
  presentConfig,
  requireConfig,
  requireExpectedConfig,
  toConfigKey,
} from './config-lookup.js';
import {
  findLastUsedNumber,
  listPinnedVersions,
  listUses,
  requireUnused,
  toFilesGuardName,
} from './workload-uses.js';

const calls = ConfigsService.method;

/** Random bytes of the uid of a config. A uid is never used again, also not after a deletion. */
const UID_BYTES = 8;
/**
 * Bytes of all values of a config at most: a version is written in one transaction, which may have
 * 1 MiB.
 */
export const MAX_VALUE_BYTES = 1_000_000;
/** The newest versions of a config that are kept, whether or not a workload uses them. */
export const KEPT_VERSIONS = 10;
/** The paths that the update mask of a config may have. */
const PATHS: readonly string[] = ['data', 'labels', 'immutable'];

type Data = Readonly<Record<string, Uint8Array>>;

/** Handlers of the calls of ConfigsService that change configs. */
export class ConfigHandlers {
  constructor(private readonly deps: MutationDeps) {}

  createConfig(request: CreateConfigRequest, entry: AuditEntry): Promise<Config> {
    const { name, labels, immutable, data, requestId } = request;
    const namespace = resolveNamespace(request);
    const key = toConfigKey(request);
    checkData(data);
    return runIdempotent(this.deps, calls.createConfig, toCall(request, entry), (view) => {
      if (view.config(key) !== undefined) {
        const message = `config "${key}" already exists; update it, or choose another name`;
        throw new CloudlessError('exists', message);
      }
      const { clock, random, state } = this.deps;
      const now = timestampFromMs(clock.wallTime());
      const record = create(ConfigRecordSchema, {
        ...{ namespace, name, labels, immutable, generation: 1n },
        uid: randomHex(random, UID_BYTES),
        createdAt: now,
        updatedAt: now,
        version: findLastUsedNumber(view, { kind: 'configs', namespace, name }),
      });
      const transaction = putFilesGuard(view, state.transaction(), namespace)
        .require('config', key, 'absent')
        .event(createConfigEvent(record, requestId, 'ConfigCreated', 'was created'));
      addVersion(transaction, record, data, clock.wallTime());
      transaction.put('config', key, record);
      return { response: presentConfig(record), transaction };
    });
  }

  async updateConfig(request: UpdateConfigRequest, entry: AuditEntry): Promise<Config> {
    const paths = resolvePaths(request);
    if (paths.has('data')) checkData(request.data);
    return runIdempotent(this.deps, calls.updateConfig, toCall(request, entry), async () => {
      const { state } = this.deps;
      const read = requireConfig(state.view(), request).value;
      const values = await state.readRecord('configvalue', toValueKeyId(read.uid, read.version));
      // Nothing is awaited from here on: the decision is made on one view.
      const view = state.view();
      const current = requireExpectedConfig(view, request);
      if (current.value.uid !== read.uid || current.value.version !== read.version)
        throw new CloudlessError('conflict', `config "${toConfigKey(request)}" has changed`);
      return this.decideUpdate(view, request, paths, values?.value.data ?? {});
    });
  }

  /** Deletes a config. A repeated call with another request id fails with NOT_FOUND. */
  deleteConfig(request: DeleteConfigRequest, entry: AuditEntry): Promise<DeleteConfigResponse> {
    return runIdempotent(this.deps, calls.deleteConfig, toCall(request, entry), (view) => {
      const current = requireConfig(view, request);
      const { namespace, name, uid, versions } = current.value;
      requireUnused(view, { kind: 'configs', namespace, name });
      const key = toConfigKey(request);
      const transaction = putFilesGuard(view, this.deps.state.transaction(), namespace)
        .require('config', key, current)
        .delete('config', key)
        .event(createConfigEvent(current.value, request.requestId, 'ConfigDeleted', 'was deleted'));
      for (const { version } of versions)
        transaction.delete('configvalue', toValueKeyId(uid, version));
      return { response: create(DeleteConfigResponseSchema), transaction };
    });
  }

  private decideUpdate(
    view: ClusterView,
    request: UpdateConfigRequest,
    paths: ReadonlySet<string>,
    before: Data,
  ): MutationResult<Config> {
    const current = requireExpectedConfig(view, request);
    const next = clone(ConfigRecordSchema, current.value);
    const key = toConfigKey(request);
    const hasNewData = paths.has('data') && !hasSameData(before, request.data);
    if (hasNewData && current.value.immutable) {
      const message = `config "${key}" is immutable; create a config with another name, and use that one in the workloads`;
      throw new CloudlessError('precondition', message);
    }
    if (paths.has('immutable')) next.immutable ||= request.immutable;
    if (paths.has('labels')) next.labels = { ...request.labels };
    const nowMs = this.deps.clock.wallTime();
    const transaction = this.deps.state.transaction();
    if (hasNewData) {
      addVersion(transaction, next, request.data, nowMs);
      removeOldVersions(view, transaction, next);
    }
    const { namespace, name } = next;
    const usedBy = listUses(view, { kind: 'configs', namespace, name }, current.value.version);
    const isUnchanged = equals(ConfigRecordSchema, current.value, next);
    if (!isUnchanged) {
      next.generation += 1n;
      next.updatedAt = timestampFromMs(nowMs);
    }
    const response = Object.assign(presentConfig(next), { usedBy });
    if (isUnchanged || request.dryRun) return { response };
    const text = hasNewData
      ? `has version ${next.version}`
      : `has new settings (generation ${next.generation})`;
    putFilesGuard(view, transaction, namespace)
      .require('config', key, current)
      .put('config', key, next)
      .event(createConfigEvent(next, request.requestId, 'ConfigUpdated', text));
    return { response, transaction };
  }
}

/** Calls on one config run one at a time. */
function toCall<Request extends { readonly namespace: string; readonly name: string }>(
  request: Request,
  entry: AuditEntry,
) {
  const subject = `config "${toConfigKey(request)}"`;
  return { request, entry, subject, sharedWith: toFilesGuardName(request) };
}

/**
 * Returns the fields that a request changes.
 * @throws kind `invalid` for an unknown path.
 */
function resolvePaths({ updateMask, data, labels, immutable }: UpdateConfigRequest): Set<string> {
  const paths = updateMask?.paths ?? [];
  if (paths.length === 0)
    return new Set([
      ...(Object.keys(data).length > 0 ? ['data'] : []),
      ...(Object.keys(labels).length > 0 ? ['labels'] : []),
      ...(immutable ? ['immutable'] : []),
    ]);
  const unknown = paths.filter((path) => !PATHS.includes(path));
  if (unknown.length === 0) return new Set(paths);
  throw new InvalidInputError(
    unknown.map((path) => ({
      field: 'update_mask',
      message: `"${path}" is not a field that can change; use ${PATHS.join(', ')}`,
    })),
  );
}

/** @throws kind `invalid` when there are no values, or too many bytes. */
function checkData(data: Data): void {
  const keys = Object.keys(data);
  if (keys.length === 0)
    throw new InvalidInputError([{ field: 'data', message: 'needs at least one key' }]);
  const bytes = keys.reduce((sum, key) => sum + (data[key]?.byteLength ?? 0), 0);
  if (bytes <= MAX_VALUE_BYTES) return;
  const message = `${bytes} bytes of values are more than ${MAX_VALUE_BYTES}; use a volume for large files`;
  throw new InvalidInputError([{ field: 'data', message }]);
}

function hasSameData(before: Data, after: Data): boolean {
  const keys = Object.keys(after);
  return (
    keys.length === Object.keys(before).length &&
    keys.every((key) => {
      const [left, right] = [before[key], after[key]];
      return left !== undefined && right !== undefined && Buffer.compare(left, right) === 0;
    })
  );
}

/** Adds a version with these values to a record, in place, and to a transaction. */
function addVersion(
  transaction: Transaction,
  record: ConfigRecord,
  data: Data,
  nowMs: number,
): void {
  record.version += 1;
  const { uid, version } = record;
  const sizes = Object.fromEntries(
    Object.entries(data).map(([key, value]) => [key, value.byteLength]),
  );
  record.versions.push(
    create(ConfigVersionSchema, { version, createdAt: timestampFromMs(nowMs), sizes }),
  );
  const values = create(ConfigValueRecordSchema, { data: { ...data } });
  transaction.put('configvalue', toValueKeyId(uid, version), values);
}

/**
 * Removes the versions beyond the kept ones that no kept version of a workload uses, from the record
 * in place, and from the store.
 */
function removeOldVersions(
  view: ClusterView,
  transaction: Transaction,
  record: ConfigRecord,
): void {
  if (record.versions.length <= KEPT_VERSIONS) return;
  const { namespace, name, uid } = record;
  const pinned = listPinnedVersions(view, { kind: 'configs', namespace, name });
  const oldest = record.version - KEPT_VERSIONS;
  const isKept = (version: number): boolean => version > oldest || pinned.has(version);
  for (const { version } of record.versions)
    if (!isKept(version)) transaction.delete('configvalue', toValueKeyId(uid, version));
  record.versions = record.versions.filter(({ version }) => isKept(version));
}

function createConfigEvent(
  { namespace, name }: ConfigRecord,
  requestId: string,
  reason: string,
  text: string,
): EventInit {
  return {
    ...{ severity: Severity.INFO, category: Category.WORKLOAD, namespace, requestId, reason },
    message: `config ${namespace}/${name} ${text}`,
  };
}
