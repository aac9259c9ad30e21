import type { RuleType } from '../model.js';
import { capabilities } from './capability-rules.js';
import { egressDestination } from './egress-rules.js';
import { imageRegistry } from './image-rules.js';
import { hostNetwork, nodeSelector, resourceLimit, volumeType } from './node-rules.js';
import type { RuleDefinition } from './rule-definition.js';
import {
  apparmorProfile,
  privilegedMode,
  readOnlyRootFs,
  runAsNonRoot,
  runtimeClass,
  seccompProfile,
  securityContext,
  selinuxOptions,
} from './security-rules.js';

/** The types of rules that read fields of the spec. EXPRESSION is not among them. */
export type NativeRuleType = Exclude<RuleType, 'EXPRESSION'>;

/** The definition of each type of rule but EXPRESSION, whose engine is passed in. */
export const NATIVE_RULES: { readonly [Type in NativeRuleType]: RuleDefinition<Type> } = {
  IMAGE_REGISTRY: imageRegistry,
  CAPABILITIES: capabilities,
  EGRESS_DESTINATION: egressDestination,
  RESOURCE_LIMIT: resourceLimit,
  NODE_SELECTOR: nodeSelector,
  PRIVILEGED_MODE: privilegedMode,
  HOST_NETWORK: hostNetwork,
  VOLUME_TYPE: volumeType,
  SECURITY_CONTEXT: securityContext,
  SECCOMP_PROFILE: seccompProfile,
  APPARMOR_PROFILE: apparmorProfile,
  SELINUX_OPTIONS: selinuxOptions,
  RUNTIME_CLASS: runtimeClass,
  RUN_AS_NON_ROOT: runAsNonRoot,
  READ_ONLY_ROOT_FS: readOnlyRootFs,
};

/** Every type of rule. */
export const RULE_TYPES: readonly RuleType[] = [
  ...(Object.keys(NATIVE_RULES) as NativeRuleType[]),
  'EXPRESSION',
];
