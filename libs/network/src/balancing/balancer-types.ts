/** Rule by which an endpoint is chosen. See LoadBalancerConfig.Algorithm of the API. */
export type BalancingAlgorithm =
  'randomTwo' | 'roundRobin' | 'weighted' | 'leastConnections' | 'sourceHash';

/** Settings of the ejection of endpoints whose connections fail. */
export interface OutlierEjectionConfig {
  /** Failed connects in a row that eject an endpoint, at least 1. */
  readonly consecutiveFailures: number;
  /** Time of the first ejection. Doubles with each further ejection, up to ten times this time. */
  readonly baseEjectionMs: number;
  /** Largest share of the ready endpoints that may be ejected, percent, 1 to 100. */
  readonly maxEjectionPercent: number;
}

/** Settings of the balancing of connections to one port of a service. */
export interface BalancerConfig {
  readonly algorithm: BalancingAlgorithm;
  /** Prefers endpoints of the same node, then zone, then region. */
  readonly localityAware: boolean;
  /** Undefined: no endpoint is ejected. */
  readonly outlierEjection: OutlierEjectionConfig | undefined;
  /**
   * Time after the last connection of a client for which its endpoint is kept. Undefined: every
   * connection is balanced alone.
   */
  readonly sessionAffinityMs: number | undefined;
  /** Connections that one node holds at a time, over all ports of the service. 0: no limit. */
  readonly maxConnections: number;
}

/** Balancing of a service that sets nothing, as in LoadBalancerConfig of the API. */
export const DEFAULT_BALANCER_CONFIG: BalancerConfig = {
  algorithm: 'randomTwo',
  localityAware: true,
  outlierEjection: { consecutiveFailures: 3, baseEjectionMs: 5_000, maxEjectionPercent: 50 },
  sessionAffinityMs: undefined,
  maxConnections: 0,
};

/** Weight of an endpoint unless a user or a rollout sets another. */
export const DEFAULT_ENDPOINT_WEIGHT = 100;

/** Location of a proxy or an endpoint. Empty text: not known, never equal to another place. */
export interface Place {
  readonly nodeId: string;
  readonly zone: string;
  readonly region: string;
}

/** An endpoint of one port of a service. */
export interface BalancedEndpoint extends Place {
  /** Unique in the service. */
  readonly id: string;
  /** True when the endpoint receives new connections. False for endpoints that leave. */
  readonly ready: boolean;
  /** Name of the workload of the replica; empty outside the cluster. */
  readonly workload: string;
  /**
   * Share of new connections. 0: none. While the versions of a workload have weights of their own,
   * relative to the other endpoints of the workload; otherwise relative to all endpoints.
   */
  readonly weight: number;
  /**
   * Version of the replica; 0 outside the cluster. The shares of versions with different weights
   * hold on every node, also where the near endpoints are of one version.
   */
  readonly version: number;
}

/** Smallest place that an endpoint and the proxy share. */
export type Nearness = 'node' | 'zone' | 'region' | 'any';

/** Input of one choice. */
export interface ChoiceRequest {
  /** IP address of the client. */
  readonly clientAddress: string;
  /** Monotonic time in milliseconds. */
  readonly nowMs: number;
  /** Ids of endpoints that failed for this connection. */
  readonly exclude?: ReadonlySet<string>;
}

/** Reason why no endpoint was chosen. */
export type ChoiceRefusal =
  | 'noEndpoints' // the service has no endpoint at all
  | 'noReadyEndpoints' // no endpoint is ready with a weight above 0
  | 'allEjected' // all ready endpoints are ejected
  | 'allExcluded' // the caller excluded all endpoints that could be chosen
  | 'tooManyConnections'; // the node holds `maxConnections` connections to the service

/** Result of one choice. */
export type Choice =
  | {
      readonly kind: 'endpoint';
      readonly endpointId: string;
      readonly nearness: Nearness;
      /** Chosen because the client used the endpoint before. */
      readonly byAffinity: boolean;
    }
  | { readonly kind: 'refused'; readonly reason: ChoiceRefusal };

/** State of an endpoint, for `network trace` and diagnostics. */
export interface EndpointState {
  readonly endpointId: string;
  readonly nearness: Nearness;
  readonly openConnections: number;
  readonly state:
    | { readonly kind: 'available' }
    | { readonly kind: 'notReady' }
    | { readonly kind: 'noWeight' }
    | { readonly kind: 'ejected'; readonly untilMs: number; readonly failures: number };
}
