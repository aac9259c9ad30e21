import { create } from '@bufbuild/protobuf';
import type { HandlerContext } from '@connectrpc/connect';
import {
  CoordinatorService,
  Event_Category as Category,
  Event_Severity as Severity,
  GetReplicaFilesResponseSchema,
  ReplicaFilesVersionSchema,
  ReplicaFilesVersion_Kind as Kind,
  type FileKey,
  type GetReplicaFilesRequest,
  type GetReplicaFilesResponse,
  type ReplicaFilesVersion,
} from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import { CloudlessError, Throttle, errorFields, type Clock, type Log } from '@cloudless/base';
import {
  holdsResources,
  toConfigKeyId,
  toValueKeyId,
  type ClusterState,
  type ClusterView,
} from '@cloudless/cluster-state';
import { createDeniedError, type CallAccess } from '../access/call-access.js';
import type { AuditEntry, AuditLog } from '../audit/audit-log.js';
import { toAuditSubject } from '../audit/audit-subject.js';
import { requireSecret, requireUnexpired, toSecretKey } from '../secret/secret-lookup.js';
import type { SecretValues } from '../secret/secret-values.js';
import { requireAudience } from './file-refs.js';

const { getReplicaFiles } = CoordinatorService.method;

/** The values of a version of a secret or config. */
export interface FileValues {
  readonly uid: string;
  readonly version: number;
  readonly data: ReadonlyMap<string, Uint8Array>;
}

/** Refusals for one node and replica that get an event each; later ones are merged. */
const BURST = 3;
const MERGE_MS = 60_000;

/** A secret or config that a replica uses, and the keys that it gets. */
interface Wanted {
  readonly kind: Kind;
  readonly name: string;
  /** 0: the newest. */
  readonly version: number;
  /** Empty: all keys. */
  readonly keys: readonly FileKey[];
  /** Empty: that of the workload. */
  readonly audience: string;
}

/** A secret or config of a replica, and the version that the replica uses now. */
interface Delivery {
  readonly wanted: Wanted;
  readonly version: ReplicaFilesVersion;
  /** The agent has this version already. */
  readonly unchanged: boolean;
}

export interface ReplicaFilesDeps {
  readonly state: ClusterState;
  readonly clock: Clock;
  readonly log: Log;
  readonly access: CallAccess;
  readonly audit: AuditLog;
  readonly secretValues: SecretValues;
}

/** Sends the values of secrets and configs to the node that runs a replica now. */
export class ReplicaFiles {
  private readonly refusals: Throttle;

  constructor(private readonly deps: ReplicaFilesDeps) {
    this.refusals = new Throttle({ clock: deps.clock, burst: BURST, everyMs: MERGE_MS });
  }

  /**
   * Handles GetReplicaFiles. The assignment of the replica is checked again before each value is
   * sent: a node from which the replica has moved gets none. One audit record names all secrets whose
   * values are sent, with their versions. It is committed before the first value, so that no node has
   * values without a record; when a value cannot be sent after that, a second record has the error.
   * @throws kind `denied` when the replica is not assigned to the node of the caller.
   */
  getReplicaFiles(
    request: GetReplicaFilesRequest,
    context: HandlerContext,
  ): AsyncGenerator<GetReplicaFilesResponse> {
    const { audit, access } = this.deps;
    return audit.wrapStream(getReplicaFiles, context, (entry) => {
      access.requireNode(entry.caller, request.nodeId);
      return this.send(request, entry);
    });
  }

  private async *send(
    request: GetReplicaFilesRequest,
    entry: AuditEntry,
  ): AsyncGenerator<GetReplicaFilesResponse> {
    const { state, audit } = this.deps;
    const { caller } = entry;
    const { replica, workload } = await this.requireAssigned(request, entry);
    entry.describe(toAuditSubject(state.view(), replica));
    const deliveries = listWanted(state.view(), replica).map((wanted): Delivery => {
      describeSecrets(entry, workload, [wanted]);
      const version = this.findVersion(workload, wanted);
      const unchanged = request.known.some((known) => isSameVersion(known, version));
      if (!unchanged) this.requirePermitted(workload, wanted);
      return { wanted, version, unchanged };
    });
    const sent = deliveries.filter(({ wanted, unchanged }) => isSecret(wanted) && !unchanged);
    describeSecrets(
      entry,
      workload,
      sent.map(({ wanted, version }) => ({ ...wanted, version: version.version })),
    );
    if (sent.length > 0) await audit.recordValues(entry);
    for (const { wanted, version: newest, unchanged } of deliveries) {
      await this.requireAssigned(request, entry);
      if (unchanged) {
        yield create(GetReplicaFilesResponseSchema, { version: newest, unchanged: true });
        continue;
      }
      describeSecrets(entry, workload, [wanted]);
      const values = await this.readValues(workload, wanted, newest);
      // The replica may have moved, or the node may have been banned, while the values were read.
      caller.check();
      await this.requireAssigned(request, entry);
      const { uid, version } = values;
      yield create(GetReplicaFilesResponseSchema, {
        version: create(ReplicaFilesVersionSchema, { ...newest, uid, version }),
        data: selectKeys(wanted, values),
      });
    }
  }

  /**
   * Returns the replica, which is assigned to the node now, and its workload.
   * @throws kind `denied`; the refusal is recorded as an event, and in the audit log of the secrets of
   *   the replica.
   */
  private async requireAssigned(
    { nodeId, replicaId }: GetReplicaFilesRequest,
    entry: AuditEntry,
  ): Promise<{ readonly replica: ReplicaRecord; readonly workload: WorkloadRecord }> {
    const view = this.deps.state.view();
    const replica = view.replica(replicaId)?.value;
    const workload = replica === undefined ? undefined : view.workload(replica.uid)?.value;
    if (replica !== undefined && workload !== undefined)
      if (replica.nodeId === nodeId && holdsResources(replica)) return { replica, workload };
    if (replica !== undefined && workload !== undefined)
      describeSecrets(entry, workload, listWanted(view, replica));
    entry.describe({ nodeId, replicaId });
    await this.recordRefusal(nodeId, replicaId, workload);
    throw createDeniedError(entry.caller.principal, getReplicaFiles, {
      message: `replica "${replicaId}" is not assigned to node "${nodeId}" now, so the node gets no secrets and configs of the replica`,
    });
  }

  private async recordRefusal(
    nodeId: string,
    replicaId: string,
    workload: WorkloadRecord | undefined,
  ): Promise<void> {
    const { state, log } = this.deps;
    const throttled = this.refusals.take(`${nodeId} ${replicaId}`);
    if (!throttled.passes) return;
    const count = throttled.suppressed?.count ?? 0;
    const more = count === 0 ? '' : ` (${count + 1} times)`;
    const transaction = state.transaction().event({
      ...{ severity: Severity.WARNING, category: Category.SECURITY, nodeId, replicaId },
      ...{ namespace: workload?.namespace ?? '', workload: workload?.name ?? '' },
      reason: 'ReplicaFilesRefused',
      message: `node ${nodeId} requested the secrets and configs of replica ${replicaId}, which is not assigned to the node${more}`,
    });
    try {
      await state.commitObserved(transaction);
    } catch (reason) {
      // The log is then the only trace of the refusal.
      log.warn('refused request for files not recorded', {
        ...{ nodeId, replicaId },
        ...errorFields(reason),
      });
    }
  }

  /** Returns the version that a replica uses now. */
  private findVersion(
    { namespace }: WorkloadRecord,
    { kind, name, version }: Wanted,
  ): ReplicaFilesVersion {
    const record = this.requireRecord(kind, namespace, name);
    return create(ReplicaFilesVersionSchema, {
      ...{ kind, name, uid: record.uid },
      version: version === 0 ? record.version : version,
    });
  }

  private requireRecord(
    kind: Kind,
    namespace: string,
    name: string,
  ): { readonly uid: string; readonly version: number } {
    const view = this.deps.state.view();
    if (kind === Kind.CONFIG) {
      const config = view.config(toConfigKeyId(namespace, name))?.value;
      if (config !== undefined) return config;
      throw new CloudlessError('MISSING_REFERENCE', `config "${namespace}/${name}" not found`);
    }
    return requireSecret(view, { namespace, name }).value;
  }

  /** Checks that a secret may be sent now. Configs have no such limits. */
  private requirePermitted(workload: WorkloadRecord, wanted: Wanted): void {
    if (!isSecret(wanted)) return;
    const { state, clock } = this.deps;
    const { namespace } = workload;
    const { value } = requireSecret(state.view(), { namespace, name: wanted.name });
    requireAudience(value, workload, wanted.audience);
    requireUnexpired(value, clock.wallTime());
  }

  private async readValues(
    workload: WorkloadRecord,
    wanted: Wanted,
    { kind, uid, version }: ReplicaFilesVersion,
  ): Promise<FileValues> {
    const { state, secretValues } = this.deps;
    const { namespace } = workload;
    const { name } = wanted;
    if (kind !== Kind.CONFIG) {
      this.requirePermitted(workload, wanted);
      return secretValues.read(state.view(), namespace, name, version);
    }
    const values = await state.readRecord('configvalue', toValueKeyId(uid, version));
    if (values !== undefined)
      return { uid, version, data: new Map(Object.entries(values.value.data)) };
    const message = `config "${namespace}/${name}" has no version ${version}`;
    throw new CloudlessError('MISSING_REFERENCE', message);
  }
}

/** Returns what a replica uses, by the template of its version. */
function listWanted(view: ClusterView, { uid, version }: ReplicaRecord): readonly Wanted[] {
  const template = view.version(uid, version)?.template;
  if (template === undefined) return [];
  const pullSecret = template.imagePull?.secret ?? '';
  return [
    ...template.secrets.map((ref) => ({ ...ref, kind: Kind.SECRET })),
    ...template.configs.map((ref) => ({ ...ref, kind: Kind.CONFIG, audience: '' })),
    ...(pullSecret === ''
      ? []
      : [{ kind: Kind.IMAGE_PULL_SECRET, name: pullSecret, version: 0, keys: [], audience: '' }]),
  ];
}

function isSecret({ kind }: Pick<Wanted, 'kind'>): boolean {
  return kind !== Kind.CONFIG;
}

/** Names the secrets among `wanted` in the audit record, with their versions unless these are 0. */
function describeSecrets(
  entry: AuditEntry,
  { namespace }: WorkloadRecord,
  wanted: readonly Pick<Wanted, 'kind' | 'name' | 'version'>[],
): void {
  const secrets = wanted.filter(isSecret);
  entry.describe({
    secrets: secrets.map(({ name }) => toSecretKey({ namespace, name })),
    secretVersions: secrets.map(({ version }) => version),
  });
}

function isSameVersion(left: ReplicaFilesVersion, right: ReplicaFilesVersion): boolean {
  return (
    left.kind === right.kind &&
    left.name === right.name &&
    left.uid === right.uid &&
    left.version === right.version
  );
}

/**
 * Returns the values of the keys that the spec names.
 * @throws reason MISSING_REFERENCE, naming the first key that the version does not have.
 */
function selectKeys(
  { kind, name, keys }: Wanted,
  { version, data }: FileValues,
): Record<string, Uint8Array> {
  if (keys.length === 0) return Object.fromEntries(data);
  return Object.fromEntries(
    keys.map(({ key }) => {
      const value = data.get(key);
      if (value !== undefined) return [key, value];
      const noun = kind === Kind.CONFIG ? 'config' : 'secret';
      const message = `version ${version} of ${noun} "${name}" has no key "${key}"`;
      throw new CloudlessError('MISSING_REFERENCE', message);
    }),
  );
}
