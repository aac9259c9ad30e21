import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import {
  OrderSchema,
  StartOrderSchema,
  StopOrderSchema,
  WorkloadSpecSchema,
  withDefaults,
  type Order,
} from '@cloudless/api';
import type { NodeNetworkAccess } from '../network/node-network.js';

/** Creates a start order for a replica of workload `web` that runs `server`, unless overridden. */
export function aStartOrder(
  options: {
    readonly replicaId?: string;
    readonly revision?: bigint;
    readonly epoch?: bigint;
    readonly slot?: number;
    readonly workload?: string;
    readonly spec?: MessageInitShape<typeof WorkloadSpecSchema>;
    /** Makes the replica exclusive. */
    readonly stopAfterMs?: number;
  } = {},
): Order {
  const {
    replicaId = 'web-1',
    revision = 10n,
    epoch = 1n,
    slot = 0,
    workload = 'web',
    spec = {},
    stopAfterMs,
  } = options;
  return create(OrderSchema, {
    epoch,
    orderRevision: revision,
    replicaId,
    workloadUid: replicaId.split('-')[0] ?? '',
    order: {
      case: 'start',
      value: create(StartOrderSchema, {
        namespace: 'default',
        workload,
        version: 1,
        slot,
        spec: withDefaults(create(WorkloadSpecSchema, { command: ['server'], ...spec })),
        ...(stopAfterMs === undefined ? {} : { stopAfter: durationFromMs(stopAfterMs) }),
      }),
    },
  });
}

/** Creates a stop order. Delays that are not given come from the spec of the replica. */
export function aStopOrder(
  options: {
    readonly replicaId?: string;
    readonly revision?: bigint;
    readonly epoch?: bigint;
    readonly preStopMs?: number;
    readonly graceMs?: number;
    readonly awaitGoneMs?: number;
  } = {},
): Order {
  const { replicaId = 'web-1', revision = 20n, epoch = 1n } = options;
  const { preStopMs, graceMs, awaitGoneMs } = options;
  return create(OrderSchema, {
    epoch,
    orderRevision: revision,
    replicaId,
    workloadUid: replicaId.split('-')[0] ?? '',
    order: {
      case: 'stop',
      value: create(StopOrderSchema, {
        reason: 'scaled down',
        ...(preStopMs === undefined ? {} : { preStopDelay: durationFromMs(preStopMs) }),
        ...(graceMs === undefined ? {} : { gracePeriod: durationFromMs(graceMs) }),
        ...(awaitGoneMs === undefined ? {} : { awaitEndpointsGone: durationFromMs(awaitGoneMs) }),
      }),
    },
  });
}

/** Creates a forget order. */
export function aForgetOrder(
  options: {
    readonly replicaId?: string;
    readonly revision?: bigint;
    readonly epoch?: bigint;
  } = {},
): Order {
  const { replicaId = 'web-1', revision = 30n, epoch = 1n } = options;
  return create(OrderSchema, {
    epoch,
    orderRevision: revision,
    replicaId,
    workloadUid: replicaId.split('-')[0] ?? '',
    order: { case: 'forget', value: {} },
  });
}

/**
 * Creates a network proxy of a node without services and relays.
 * @param answers - Methods that answer otherwise.
 */
export function aNodeNetwork(answers: Partial<NodeNetworkAccess>): NodeNetworkAccess {
  return {
    findProblem: () => '',
    findServices: async () => undefined,
    findServiceAddresses: async () => [],
    openRelay: () => Promise.reject(new Error('no relay')),
    ...answers,
  };
}
