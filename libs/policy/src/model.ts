import type { WorkloadSpec } from '@cloudless/api';

/** The workload that policies judge. */
export interface PolicySubject {
  readonly namespace: string;
  readonly name: string;
  /** The spec with defaults (`withDefaults` of `@cloudless/api`), after validation. */
  readonly spec: WorkloadSpec;
}

/**
 * Effect of a policy.
 * - `DENY`: a workload that violates one of its rules is denied.
 * - `ALLOW`: a workload that satisfies all its rules is allowed, whatever policies of lower priority
 *   say.
 * - `AUDIT`: violations are reported and never change the decision.
 */
export type PolicyAction = 'ALLOW' | 'DENY' | 'AUDIT';

/** A set of rules for the workloads of one namespace or of all. */
export interface Policy {
  /** Name, unique among the policies of an evaluation. */
  readonly name: string;
  /** A namespace, or `*` for all. */
  readonly namespace: string;
  /** A policy that is not enabled is checked when it is written, and never evaluated. */
  readonly enabled: boolean;
  /** Policies with a higher priority decide first. 0 to 1000. */
  readonly priority: number;
  readonly action: PolicyAction;
  /** 1 to {@link LIMITS.rules} rules with names of their own. */
  readonly rules: readonly PolicyRule[];
}

/** One requirement on a workload. */
export type PolicyRule = {
  [Type in RuleType]: {
    /** Name, unique in the policy. */
    readonly name: string;
    readonly type: Type;
    readonly config: RuleConfigs[Type];
    /**
     * The rule applies only to workloads that meet all conditions. Default: none, every workload.
     */
    readonly conditions?: readonly PolicyCondition[];
  };
}[RuleType];

/** A comparison of one field of the workload. */
export interface PolicyCondition {
  /**
   * `namespace`, `name`, or a path of the spec in the names of the API: `spec.security.privileged`,
   * `spec.labels["app"]`. Fields of repeated messages have no path: use a rule of type EXPRESSION.
   */
  readonly field: string;
  readonly operator: ConditionOperator;
  /** A list for IN and NOT_IN; absent for EXISTS and NOT_EXISTS; else one value. */
  readonly value?: ConditionValue | readonly ConditionValue[];
}

/** A value of a condition. Enum fields have the name of the value: `NEVER`. */
export type ConditionValue = string | number | boolean;

/**
 * Comparisons of conditions. An absent field differs from every value: NOT_EQUALS and NOT_IN are
 * true, the others but NOT_EXISTS are false. CONTAINS compares a part of a text, or one item of a
 * list.
 */
export const CONDITION_OPERATORS = [
  'EQUALS',
  'NOT_EQUALS',
  'IN',
  'NOT_IN',
  'EXISTS',
  'NOT_EXISTS',
  'GREATER_THAN',
  'LESS_THAN',
  'STARTS_WITH',
  'ENDS_WITH',
  'CONTAINS',
] as const;
/** One of {@link CONDITION_OPERATORS}. */
export type ConditionOperator = (typeof CONDITION_OPERATORS)[number];

/** Bounds of policies. Each keeps the cost of one evaluation small. */
export const LIMITS = {
  /** Rules of a policy. */
  rules: 64,
  /** Conditions of a rule. */
  conditions: 16,
  /** Items of a list or map in a configuration or condition. */
  items: 256,
  /** Length of a text in a configuration or condition, characters. */
  textLength: 1_024,
  /** Highest priority of a policy. */
  priority: 1_000,
} as const;

/** Configuration of each type of rule. Every text is compared exactly unless stated otherwise. */
export interface RuleConfigs {
  /** Registry and repository of the image. At least one of the fields is required. */
  readonly IMAGE_REGISTRY: {
    /**
     * Allowed registries with or without the start of a repository: `registry.example:5000`,
     * `*.example.com`, `docker.io/library`. Whole path segments are compared. An image without a
     * registry is from `docker.io`. Default: every registry.
     */
    readonly allowed?: readonly string[];
    /** Denied registries, written as in `allowed`. Wins over `allowed`. */
    readonly denied?: readonly string[];
    /** The image needs a digest (`@sha256:…`). Default: false. */
    readonly requireDigest?: boolean;
  };
  /**
   * Linux capabilities, named with or without `CAP_`. A privileged container adds `ALL` and drops
   * none. At least one of the fields is required.
   */
  readonly CAPABILITIES: {
    /** Capabilities that a workload may add; none with an empty list. Default: all. */
    readonly allowedAdd?: readonly string[];
    /** Capabilities that a workload must not add. Adding `ALL` adds each of them. */
    readonly deniedAdd?: readonly string[];
    /** Capabilities that a workload must drop. Dropping `ALL` drops each of them. */
    readonly requiredDrop?: readonly string[];
  };
  /**
   * Destinations of connections. A workload needs an egress limit (`network.egress`), and each of its
   * destinations must lie within one of the allowed destinations: its network in the network, its
   * services among the services, and each range of its ports in one allowed range.
   */
  readonly EGRESS_DESTINATION: {
    /** Allowed destinations, at most 64; none with an empty list. */
    readonly allowed: readonly EgressAllowed[];
  };
  /** Upper bounds of limits and requests. A workload without the limit violates its bound. */
  readonly RESOURCE_LIMIT: {
    /** Bound of `resources.limits.cpu_millis`, thousandths of a core. */
    readonly maxCpuMillis?: number;
    /** Bound of `resources.limits.memory_bytes`. */
    readonly maxMemoryBytes?: number;
    /** Bound of `resources.limits.pids`. */
    readonly maxPids?: number;
    /** Bound of `resources.requests.storage_bytes`. */
    readonly maxStorageBytes?: number;
    /** Bound of `resources.requests.bandwidth_bps`. */
    readonly maxBandwidthBps?: number;
  };
  /** Labels of nodes that `placement.node_selector` must or must not select. */
  readonly NODE_SELECTOR: {
    /** Required labels with their allowed values; an empty list allows every value. */
    readonly required?: Readonly<Record<string, readonly string[]>>;
    /** Labels that a workload must not select. */
    readonly forbidden?: readonly string[];
  };
  /** Forbids privileged containers. */
  readonly PRIVILEGED_MODE: Readonly<Record<string, never>>;
  /** Forbids the network of the node. */
  readonly HOST_NETWORK: {
    /** Also forbids ports of the node (`ports[].host_port`). Default: false. */
    readonly forbidHostPorts?: boolean;
  };
  /** Sources of volumes. */
  readonly VOLUME_TYPE: {
    /** Allowed sources. */
    readonly allowed: readonly VolumeType[];
    /**
     * Paths of the node that HOST_PATH volumes may be at or below. Whole path segments are compared.
     * Default: every path. Needs HOST_PATH in `allowed`.
     */
    readonly hostPaths?: readonly string[];
    /** HOST_PATH volumes must be read-only. Default: false. Needs HOST_PATH in `allowed`. */
    readonly readOnlyHostPaths?: boolean;
  };
  /** User, groups and privileges of the processes. At least one of the fields is required. */
  readonly SECURITY_CONTEXT: {
    /** Range of `run_as_user`, which is then required: `{ min: 1000, max: 65535 }`. */
    readonly userIds?: IdRange;
    /** Range of `run_as_group`, which is then required, and of all other groups. */
    readonly groupIds?: IdRange;
    /** Forbids `no_new_privileges: false` and privileged containers. Default: false. */
    readonly requireNoNewPrivileges?: boolean;
  };
  /** Seccomp profiles: `RuntimeDefault` (also the default), `Unconfined`, `localhost/<path>`. */
  readonly SECCOMP_PROFILE: { readonly allowed: readonly string[] };
  /**
   * AppArmor profiles: `RuntimeDefault`, `Unconfined`, `localhost/<name>`, and `NodeDefault` for a
   * workload that sets none, which has no profile on nodes without AppArmor.
   */
  readonly APPARMOR_PROFILE: { readonly allowed: readonly string[] };
  /**
   * Parts of the SELinux context. A part that the workload leaves empty is allowed; a part that has
   * no list here must be empty.
   */
  readonly SELINUX_OPTIONS: {
    readonly users?: readonly string[];
    readonly roles?: readonly string[];
    readonly types?: readonly string[];
    readonly levels?: readonly string[];
  };
  /** Runtime classes. */
  readonly RUNTIME_CLASS: {
    /** Names of allowed runtime classes. */
    readonly allowed: readonly string[];
    /** Also allows workloads without a runtime class. Default: false. */
    readonly allowDefault?: boolean;
  };
  /** Requires `run_as_non_root`, or a `run_as_user` above 0. */
  readonly RUN_AS_NON_ROOT: Readonly<Record<string, never>>;
  /** Requires `read_only_root_filesystem`. */
  readonly READ_ONLY_ROOT_FS: Readonly<Record<string, never>>;
  /** A condition in CEL. */
  readonly EXPRESSION: {
    /**
     * Must be true for the workload. The variables are `spec`, `workload_namespace` and
     * `workload_name`; the fields of `spec` have the names of the API. Enum values are numbers, as in
     * the proto.
     */
    readonly expression: string;
    /** Text for the violation: the values that would be allowed. Default: the expression. */
    readonly message?: string;
  };
}

/** Type of a rule. */
export type RuleType = keyof RuleConfigs;

/** Source of a volume. */
export type VolumeType = 'EMPTY_DIR' | 'HOST_PATH' | 'NAMED';

/** A destination that EGRESS_DESTINATION allows: exactly one of `cidr` and `service`. */
export interface EgressAllowed {
  /** IPv4 or IPv6 network, or an address: `10.0.0.0/8`. */
  readonly cidr?: string;
  /** Services: `<namespace>/<name>`, `<namespace>/*`, or `*` for all. */
  readonly service?: string;
  /** 1 to 16 ports. Default: every port of every protocol. */
  readonly ports?: readonly EgressAllowedPort[];
}

/** A port or a range of ports that EGRESS_DESTINATION allows. */
export interface EgressAllowedPort {
  /** Default: TCP. */
  readonly protocol?: 'TCP' | 'UDP';
  /** The port, or the first port of the range, 1 to 65535. */
  readonly port: number;
  /** The last port of the range, `port` to 65535. Default: `port`. */
  readonly endPort?: number;
}

/** Range of numeric ids; both ends belong to the range. */
export interface IdRange {
  readonly min: number;
  readonly max: number;
}

/** A part of a spec that a rule does not allow. */
export interface Finding {
  /** Path of the field in the names of the API: `spec.security.capabilities_add[0]`. */
  readonly field: string;
  /** The value that was found, for people. */
  readonly found: string;
  /** Values that the rule would allow, as a text for people. */
  readonly allowed: string;
}

/** A finding with its policy and rule. */
export interface PolicyViolation extends Finding {
  readonly policy: string;
  readonly rule: string;
  readonly action: PolicyAction;
  /** True when the rule could not be evaluated, which counts as a violation. */
  readonly failed: boolean;
}

/** The result of an evaluation. */
export interface Verdict {
  readonly decision: 'ALLOW' | 'DENY';
  /**
   * Name of the policy that decided. Absent when no ALLOW or DENY policy selects the workload (the
   * default decides), or when no single policy decides.
   */
  readonly policy?: string;
  /** True when no ALLOW or DENY policy selects the workload. */
  readonly byDefault: boolean;
  /** Violations for which the workload is denied. Empty when it is allowed. */
  readonly violations: readonly PolicyViolation[];
  /** Violations of AUDIT policies. */
  readonly audit: readonly PolicyViolation[];
}
