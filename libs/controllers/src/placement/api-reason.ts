import { create } from '@bufbuild/protobuf';
import {
  PlacementReasonSchema,
  PlacementReason_Kind as Kind,
  type PlacementReason as ApiReason,
} from '@cloudless/api';
import type { NodeReason, PlacementFilter } from '@cloudless/scheduler';

const kinds: Readonly<Record<PlacementFilter, Kind>> = {
  lost: Kind.LOST,
  unreachable: Kind.UNREACHABLE,
  draining: Kind.DRAINING,
  cordoned: Kind.CORDONED,
  quarantined: Kind.QUARANTINED,
  region: Kind.REGION,
  zone: Kind.ZONE,
  capability: Kind.CAPABILITY,
  suspendedCapability: Kind.SUSPENDED_CAPABILITY,
  nodeSelector: Kind.NODE_SELECTOR,
  nodeAffinity: Kind.NODE_AFFINITY,
  nodeAntiAffinity: Kind.NODE_ANTI_AFFINITY,
  taint: Kind.TAINT,
  replicas: Kind.REPLICAS,
  cpu: Kind.CPU,
  memory: Kind.MEMORY,
  storage: Kind.STORAGE,
  bandwidth: Kind.BANDWIDTH,
  gpu: Kind.GPU,
  customResource: Kind.CUSTOM_RESOURCE,
  hostPort: Kind.HOST_PORT,
  workloadAffinity: Kind.WORKLOAD_AFFINITY,
  workloadAntiAffinity: Kind.WORKLOAD_ANTI_AFFINITY,
  spread: Kind.SPREAD,
};

/** Returns the kind that the API uses for a filter. */
export function toReasonKind(filter: PlacementFilter): Kind {
  return kinds[filter];
}

/** Builds the API message of a reason why a node cannot run a replica. */
export function toApiReason({ filter, lasting, text }: NodeReason): ApiReason {
  return create(PlacementReasonSchema, { kind: kinds[filter], lasting, text });
}
