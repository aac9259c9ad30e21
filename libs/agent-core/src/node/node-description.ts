import { create } from '@bufbuild/protobuf';
import {
  HelloSchema,
  NodeCapacitySchema,
  NodeNetworkSchema,
  type NodeNetwork,
  TaintSchema,
  type Condition,
  type Hello,
  type Taint_Effect,
} from '@cloudless/api';
import type { AgentIdentity } from '../store/agent-store.js';

/**
 * Oldest and newest Session protocol of this agent. Version 2 adds tunnels that carry many logs.
 */
export const PROTOCOL_MIN = 1;
export const PROTOCOL_MAX = 2;

/**
 * Static description of a node in its Hello message. CPU in thousandths of a core, bandwidth in
 * bits per second, memory and storage in bytes.
 */
export interface NodeDescription {
  readonly region: string;
  readonly zone: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly taints: readonly {
    readonly key: string;
    readonly value: string;
    readonly effect: Taint_Effect;
  }[];
  readonly capacity: {
    readonly cpuMillis: number;
    readonly memoryBytes: number;
    readonly storageBytes: number;
    /** Egress bandwidth that replicas may request. Default: 0. */
    readonly bandwidthBps?: number;
    /** Custom resources by name. Default: none. */
    readonly custom?: Readonly<Record<string, number>>;
  };
  /** Reserved for the system; the coordinator places no replicas on this part of `capacity`. */
  readonly reserved: {
    readonly cpuMillis: number;
    readonly memoryBytes: number;
    readonly storageBytes?: number;
  };
  readonly maxReplicas: number;
  readonly agentVersion: string;
  readonly architecture: string;
  readonly operatingSystem: string;
  /** Address of AgentService; empty when the agent does not serve AgentService. */
  readonly agentAddress: string;
  /**
   * Address for the network proxies of other nodes. Absent: the node has no network proxy.
   */
  readonly network?: {
    /** `host:port` that accepts connections with mutual TLS; empty: the proxy only dials out. */
    readonly address: string;
    /** Equal for agents that share one network namespace. */
    readonly hostId: string;
    /** Addresses of the interfaces of the machine, sorted. Absent: not known. */
    readonly machineAddresses?: readonly string[];
  };
}

/** Builds the first message of a session. */
export function toHello(
  node: NodeDescription,
  identity: AgentIdentity,
  state: {
    readonly bootId: string;
    readonly capabilities: readonly string[];
    readonly conditions: readonly Condition[];
    /** The leader that this agent does not reach. Absent: there is none. */
    readonly unreachableLeader?: { readonly epoch: bigint; readonly address: string } | undefined;
  },
): Hello {
  return create(HelloSchema, {
    protocolMin: PROTOCOL_MIN,
    protocolMax: PROTOCOL_MAX,
    nodeId: identity.nodeId,
    instanceId: identity.instanceId,
    clusterId: identity.clusterId ?? '',
    bootId: state.bootId,
    unreachableEpoch: state.unreachableLeader?.epoch ?? 0n,
    unreachableAddress: state.unreachableLeader?.address ?? '',
    highestEpoch: identity.highestEpoch,
    region: node.region,
    zone: node.zone,
    labels: { ...node.labels },
    taints: node.taints.map((taint) => create(TaintSchema, taint)),
    capacity: create(NodeCapacitySchema, {
      cpuMillis: Math.floor(node.capacity.cpuMillis),
      memoryBytes: BigInt(Math.floor(node.capacity.memoryBytes)),
      storageBytes: BigInt(Math.floor(node.capacity.storageBytes)),
      bandwidthBps: BigInt(Math.floor(node.capacity.bandwidthBps ?? 0)),
      custom: Object.fromEntries(
        Object.entries(node.capacity.custom ?? {}).map(([name, amount]) => [
          name,
          BigInt(Math.floor(amount)),
        ]),
      ),
    }),
    reserved: create(NodeCapacitySchema, {
      cpuMillis: Math.floor(node.reserved.cpuMillis),
      memoryBytes: BigInt(Math.floor(node.reserved.memoryBytes)),
      storageBytes: BigInt(Math.floor(node.reserved.storageBytes ?? 0)),
    }),
    maxReplicas: node.maxReplicas,
    capabilities: [...state.capabilities],
    agentVersion: node.agentVersion,
    architecture: node.architecture,
    operatingSystem: node.operatingSystem,
    agentAddress: node.agentAddress,
    conditions: [...state.conditions],
    ...(node.network === undefined ? {} : { network: toNodeNetwork(node.network) }),
  });
}

function toNodeNetwork({
  address,
  hostId,
  machineAddresses,
}: NonNullable<NodeDescription['network']>): NodeNetwork {
  return create(NodeNetworkSchema, {
    ...{ address, hostId },
    ...(machineAddresses && { machineAddresses: { addresses: [...machineAddresses] } }),
  });
}
