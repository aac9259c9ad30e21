import type { Policy, PolicyCondition } from './model.js';

/**
 * Excludes processes. The operators of nodes decide about processes (`--deny-processes`), which run
 * as the user of the agent and have no fields that policies could bound.
 */
const ONLY_CONTAINERS: readonly PolicyCondition[] = [{ field: 'spec.image', operator: 'EXISTS' }];

/**
 * Capabilities that lead to the node: those that Kubernetes' baseline does not allow to add, but for
 * NET_RAW, which some network tools need and which stays within the container.
 * @see kubernetes.io/docs/concepts/security/pod-security-standards, "Baseline"
 */
export const DANGEROUS_CAPABILITIES: readonly string[] = [
  'AUDIT_CONTROL',
  'AUDIT_READ',
  'BLOCK_SUSPEND',
  'BPF',
  'CHECKPOINT_RESTORE',
  'DAC_READ_SEARCH',
  'IPC_OWNER',
  'LEASE',
  'LINUX_IMMUTABLE',
  'MAC_ADMIN',
  'MAC_OVERRIDE',
  'NET_ADMIN',
  'PERFMON',
  'SYSLOG',
  'SYS_ADMIN',
  'SYS_BOOT',
  'SYS_MODULE',
  'SYS_PACCT',
  'SYS_PTRACE',
  'SYS_RAWIO',
  'SYS_TIME',
  'SYS_TTY_CONFIG',
  'WAKE_ALARM',
];

/**
 * Policies of a new cluster. All have priority 0, so that an ALLOW policy with any other priority
 * exempts workloads.
 */
export const DEFAULT_POLICIES: readonly Policy[] = [
  {
    name: 'default-privileged',
    namespace: '*',
    enabled: true,
    priority: 0,
    action: 'DENY',
    rules: [
      { name: 'privileged', type: 'PRIVILEGED_MODE', config: {}, conditions: ONLY_CONTAINERS },
    ],
  },
  {
    name: 'default-host-namespaces',
    namespace: '*',
    enabled: true,
    priority: 0,
    action: 'DENY',
    rules: [
      { name: 'host-network', type: 'HOST_NETWORK', config: {}, conditions: ONLY_CONTAINERS },
    ],
  },
  {
    name: 'default-capabilities',
    namespace: '*',
    enabled: true,
    priority: 0,
    action: 'DENY',
    rules: [
      {
        name: 'dangerous-capabilities',
        type: 'CAPABILITIES',
        config: { deniedAdd: DANGEROUS_CAPABILITIES },
        conditions: ONLY_CONTAINERS,
      },
    ],
  },
];
