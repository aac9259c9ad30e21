import { clone, create } from '@bufbuild/protobuf';
import { WorkloadSpecSchema, type WorkloadSpec } from '@cloudless/api';
import {
  ControlRecordSchema,
  NodeRecordSchema,
  ReplicaRecordSchema,
  RolloutRecordSchema,
  VersionRecordSchema,
  WorkloadRecordSchema,
  type ControlRecord,
  type NodeRecord,
  type ReplicaRecord,
  type RolloutRecord,
  type VersionRecord,
  type WorkloadRecord,
} from '@cloudless/api/store';
import { definedFields } from '@cloudless/base';

type SpecField = Exclude<keyof WorkloadSpec, '$typeName' | '$unknown'>;
type SpecRule = 'keep' | 'remove' | 'names' | 'presence';

/**
 * Rule of each field of a spec: a snapshot keeps only fields that decide placement or rollouts. A
 * new field does not compile until it has a rule. `names` keeps the keys of a map without the
 * values; `presence` keeps only whether there are items.
 */
const SPEC_RULES: Readonly<Record<SpecField, SpecRule>> = {
  image: 'keep',
  command: 'presence',
  args: 'remove',
  env: 'remove',
  workingDir: 'remove',
  ports: 'keep',
  expose: 'keep',
  resources: 'keep',
  replicas: 'keep',
  placement: 'keep',
  priority: 'keep',
  restart: 'keep',
  terminationGracePeriod: 'keep',
  preStopDelay: 'keep',
  rollout: 'keep',
  disconnect: 'keep',
  labels: 'keep',
  annotations: 'remove',
  runtime: 'keep',
  mode: 'keep',
  livenessProbe: 'remove',
  readinessProbe: 'remove',
  startupProbe: 'remove',
  // Decide which capabilities a node needs.
  security: 'keep',
  volumes: 'keep',
  network: 'keep',
  imagePull: 'keep',
  init: 'keep',
  shmSizeBytes: 'keep',
  ulimits: 'keep',
  sysctls: 'names',
  devices: 'keep',
  identity: 'keep',
  secrets: 'remove',
  configs: 'remove',
  restartedAt: 'keep',
};

/** Stands for the words of a command, and for the values of a map. */
const REDACTED = 'redacted';

/** Returns a copy of a spec without the fields that a snapshot must not contain. */
export function redactSpec(spec: WorkloadSpec): WorkloadSpec {
  const copy = clone(WorkloadSpecSchema, spec);
  delete copy.$unknown;
  const redacted = create(WorkloadSpecSchema);
  for (const [field, rule] of Object.entries(SPEC_RULES) as [SpecField, SpecRule][])
    if (rule !== 'remove') Object.assign(redacted, { [field]: applyRule(rule, copy[field]) });
  return redacted;
}

function applyRule(rule: SpecRule, value: unknown): unknown {
  if (rule === 'presence') return Array.isArray(value) && value.length > 0 ? [REDACTED] : [];
  if (rule === 'names')
    return Object.fromEntries(Object.keys(value as object).map((key) => [key, REDACTED]));
  return value;
}

/** Returns the part of a workload that a simulation reads. */
export function redactWorkload(record: WorkloadRecord): WorkloadRecord {
  const { uid, namespace, name, generation, version, createdAt, deletionRequestedAt } = record;
  return create(WorkloadRecordSchema, {
    ...{ uid, namespace, name, generation, version },
    ...definedFields({
      createdAt,
      deletionRequestedAt,
      spec: record.spec === undefined ? undefined : redactSpec(record.spec),
    }),
  });
}

/** Returns the part of a version that a simulation reads. */
export function redactVersion(record: VersionRecord): VersionRecord {
  const { version, createdAt, sameAs, rolledOut, template } = record;
  return create(VersionRecordSchema, {
    ...{ version, sameAs, rolledOut },
    ...definedFields({
      createdAt,
      template: template === undefined ? undefined : redactSpec(template),
    }),
  });
}

type ControlField = Exclude<keyof ControlRecord, '$typeName' | '$unknown'>;
type RolloutField = Exclude<keyof RolloutRecord, '$typeName' | '$unknown'>;

/** Rule of each field of a control record, as of the fields of a spec. */
const CONTROL_RULES: Readonly<Record<ControlField, 'keep' | 'remove' | 'rollout'>> = {
  uid: 'keep',
  nextSequence: 'keep',
  observedGeneration: 'keep',
  activeVersion: 'keep',
  rolloutPhase: 'keep',
  // May contain output of a replica.
  rolloutReason: 'remove',
  backoff: 'keep',
  rollout: 'rollout',
  pausedVersion: 'keep',
  eviction: 'keep',
};

const ROLLOUT_RULES: Readonly<Record<RolloutField, 'keep' | 'remove'>> = {
  version: 'keep',
  fromVersion: 'keep',
  strategy: 'keep',
  startedAt: 'keep',
  stepsDone: 'keep',
  stepReachedAt: 'keep',
  waitsForPromotion: 'keep',
  promoted: 'keep',
  failedNew: 'keep',
  progress: 'keep',
  progressAt: 'keep',
  switchedAt: 'keep',
  // Contains the last lines of output of a replica.
  failure: 'remove',
  rollsBack: 'keep',
  forgiven: 'keep',
  retry: 'keep',
  failedGone: 'keep',
  firstSequence: 'keep',
  until: 'keep',
  endedAt: 'keep',
  gateVerdict: 'keep',
  gateSince: 'keep',
};

/** Returns the part of a control record that a simulation reads. */
export function redactControl(record: ControlRecord): ControlRecord {
  const { rollout } = record;
  const redacted = Object.assign(create(ControlRecordSchema), pickKept(record, CONTROL_RULES));
  if (rollout !== undefined)
    redacted.rollout = Object.assign(create(RolloutRecordSchema), pickKept(rollout, ROLLOUT_RULES));
  return redacted;
}

/** Returns the fields of a message whose rule is `keep`. */
function pickKept<Message extends object>(
  message: Message,
  rules: Readonly<Record<string, string>>,
): Partial<Message> {
  return Object.fromEntries(
    Object.entries(message).filter(
      ([field, value]) => rules[field] === 'keep' && value !== undefined,
    ),
  ) as Partial<Message>;
}

/** Returns the part of a node that a simulation reads: no addresses and no certificates. */
export function redactNode(record: NodeRecord): NodeRecord {
  const { id, createdAt, zone, region, drain, hello } = record;
  const { labels, removedLabels, taints, removedTaints, taintsSince } = record;
  const { cordoned, draining, lost, lossConfirmed } = record;
  return create(NodeRecordSchema, {
    ...{ id, labels, removedLabels, taints, removedTaints, taintsSince },
    ...{ cordoned, draining, lost, lossConfirmed },
    ...definedFields({ createdAt, zone, region, drain }),
    ...(hello === undefined
      ? {}
      : {
          hello: {
            nodeId: id,
            region: hello.region,
            zone: hello.zone,
            labels: hello.labels,
            taints: hello.taints,
            maxReplicas: hello.maxReplicas,
            capabilities: hello.capabilities,
            ...definedFields({ capacity: hello.capacity, reserved: hello.reserved }),
          },
        }),
  });
}

/** Returns the part of a replica that a simulation reads: no containers, addresses and output. */
export function redactReplica(record: ReplicaRecord): ReplicaRecord {
  const { id, uid, sequence, slot, version, nodeId, onlyNodeId, nominatedNodeId, phase } = record;
  const { desiredRunning, ready, lost, reason, createdAt, readySince } = record;
  return create(ReplicaRecordSchema, {
    ...{ id, uid, sequence, slot, version, nodeId, onlyNodeId, nominatedNodeId, phase },
    ...{ desiredRunning, ready, lost },
    // The reason of a replica with a node may contain output of the replica.
    reason: nodeId === '' ? reason : '',
    ...definedFields({ createdAt, readySince }),
  });
}
