import type { MessageInitShape } from '@bufbuild/protobuf';
import {
  PolicyRule_Type as Type,
  type EgressDestinationSchema,
  type EgressPortSchema,
  type PolicyRuleSchema,
  type PolicySpecSchema,
  type WorkloadSpecSchema,
} from '@cloudless/api';

type Rule = MessageInitShape<typeof PolicyRuleSchema>;
type Spec = MessageInitShape<typeof WorkloadSpecSchema>;

/** One type of rule with a spec that violates it and one that does not. */
export interface RuleCase {
  readonly rule: Rule & { readonly type: Type };
  readonly refused: Spec;
  readonly accepted: Spec;
  /** Path of the field that violates the rule. */
  readonly field: string;
}

const image = 'nginx:alpine';

function aDestination(
  value: string,
  ...ports: MessageInitShape<typeof EgressPortSchema>[]
): MessageInitShape<typeof EgressDestinationSchema> {
  return { destination: { case: 'cidr', value }, ports };
}

/** A case for each type of rule. */
export const RULE_CASES: readonly RuleCase[] = [
  {
    rule: {
      type: Type.IMAGE_REGISTRY,
      config: { case: 'imageRegistry', value: { allowed: ['registry.example'] } },
    },
    refused: { image },
    accepted: { image: 'registry.example/web:1' },
    field: 'spec.image',
  },
  {
    rule: {
      type: Type.CAPABILITIES,
      config: { case: 'capabilities', value: { forbidAdd: true } },
    },
    refused: { image, security: { capabilitiesAdd: ['NET_ADMIN'] } },
    accepted: { image },
    field: 'spec.security.capabilities_add[0]',
  },
  {
    rule: {
      type: Type.EGRESS_DESTINATION,
      config: {
        case: 'egressDestination',
        value: { allowed: [aDestination('10.0.0.0/8', { port: 1, endPort: 1023 })] },
      },
    },
    refused: { image, network: { egress: { allowed: [aDestination('10.0.0.0/8')] } } },
    accepted: {
      image,
      network: {
        egress: {
          allowed: [aDestination('10.1.0.0/16', { port: 443 }, { port: 80, endPort: 89 })],
        },
      },
    },
    field: 'spec.network.egress.allowed[0]',
  },
  {
    rule: {
      type: Type.RESOURCE_LIMIT,
      config: { case: 'resourceLimit', value: { maxCpuMillis: 500n } },
    },
    refused: { image, resources: { limits: { cpuMillis: 501 } } },
    accepted: { image, resources: { limits: { cpuMillis: 500 } } },
    field: 'spec.resources.limits.cpu_millis',
  },
  {
    rule: {
      type: Type.NODE_SELECTOR,
      config: { case: 'nodeSelector', value: { required: { pool: { values: ['shared'] } } } },
    },
    refused: { image, placement: { nodeSelector: { pool: 'gpu' } } },
    accepted: { image, placement: { nodeSelector: { pool: 'shared' } } },
    field: 'spec.placement.node_selector["pool"]',
  },
  {
    rule: { type: Type.PRIVILEGED_MODE },
    refused: { image, security: { privileged: true } },
    accepted: { image },
    field: 'spec.security.privileged',
  },
  {
    rule: { type: Type.HOST_NETWORK },
    refused: { image, network: { hostNetwork: true } },
    accepted: { image },
    field: 'spec.network.host_network',
  },
  {
    rule: {
      type: Type.VOLUME_TYPE,
      config: { case: 'volumeType', value: { allowed: [0] } },
    },
    refused: {
      image,
      volumes: [
        { name: 'a', mountPath: '/a', source: { case: 'hostPath', value: { path: '/srv' } } },
      ],
    },
    accepted: {
      image,
      volumes: [{ name: 'a', mountPath: '/a', source: { case: 'emptyDir', value: {} } }],
    },
    field: 'spec.volumes[0]',
  },
  {
    rule: {
      type: Type.SECURITY_CONTEXT,
      config: { case: 'securityContext', value: { userIds: { min: 1000n, max: 2000n } } },
    },
    refused: { image, security: { runAsUser: 5n } },
    accepted: { image, security: { runAsUser: 1000n } },
    field: 'spec.security.run_as_user',
  },
  {
    rule: {
      type: Type.SECCOMP_PROFILE,
      config: { case: 'seccompProfile', value: { allowed: ['RuntimeDefault'] } },
    },
    refused: { image, security: { seccompProfile: 'Unconfined' } },
    accepted: { image },
    field: 'spec.security.seccomp_profile',
  },
  {
    rule: {
      type: Type.APPARMOR_PROFILE,
      config: { case: 'apparmorProfile', value: { allowed: ['NodeDefault'] } },
    },
    refused: { image, security: { apparmorProfile: 'Unconfined' } },
    accepted: { image },
    field: 'spec.security.apparmor_profile',
  },
  {
    rule: {
      type: Type.SELINUX_OPTIONS,
      config: { case: 'selinuxOptions', value: { types: ['web_t'] } },
    },
    refused: { image, security: { selinuxOptions: '::other_t:' } },
    accepted: { image, security: { selinuxOptions: '::web_t:' } },
    field: 'spec.security.selinux_options',
  },
  {
    rule: {
      type: Type.RUNTIME_CLASS,
      config: { case: 'runtimeClass', value: { allowed: ['gvisor'] } },
    },
    refused: { image },
    accepted: { image, security: { runtimeClass: 'gvisor' } },
    field: 'spec.security.runtime_class',
  },
  {
    rule: { type: Type.RUN_AS_NON_ROOT },
    refused: { image },
    accepted: { image, security: { runAsNonRoot: true } },
    field: 'spec.security.run_as_non_root',
  },
  {
    rule: { type: Type.READ_ONLY_ROOT_FS },
    refused: { image },
    accepted: { image, security: { readOnlyRootFilesystem: true } },
    field: 'spec.security.read_only_root_filesystem',
  },
  {
    rule: {
      type: Type.EXPRESSION,
      config: { case: 'expression', value: { expression: 'spec.replicas <= 2' } },
    },
    refused: { image, replicas: 3 },
    accepted: { image, replicas: 2 },
    field: 'spec',
  },
];

/** Returns a policy that denies everywhere what violates the rule, with the given fields replaced. */
export function aPolicySpec(
  rule: Rule,
  changes: MessageInitShape<typeof PolicySpecSchema> = {},
): MessageInitShape<typeof PolicySpecSchema> {
  return { namespace: '*', rules: [{ name: 'rule', ...rule }], ...changes };
}
