import type { Finding, PolicySubject, RuleConfigs, RuleType } from '../model.js';
import type { ConfigReader } from './config-reader.js';

/** Returns what the rule does not allow in a workload; an empty list when the rule is satisfied. */
export type RuleCheck = (subject: PolicySubject) => readonly Finding[];

/** A rule that is satisfied. Shared, so that the common case allocates nothing. */
export const SATISFIED: readonly Finding[] = [];

/** Check of one type of rule. */
export interface RuleDefinition<Type extends RuleType> {
  /**
   * True for rules about fields that only containers have. A process runs on the node itself, so it
   * violates such a rule unless a condition excludes processes.
   */
  readonly needsContainer: boolean;
  /** Reads the configuration, and reports what is wrong in it. */
  readonly read: (reader: ConfigReader) => RuleConfigs[Type];
  /**
   * Prepares the check.
   * @throws An error with a message for people when the configuration cannot be used.
   */
  readonly create: (config: RuleConfigs[Type]) => RuleCheck;
}
