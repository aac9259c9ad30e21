import { AGENT_FAULTS } from './agent-faults.js';
import { COORDINATOR_FAULTS } from './coordinator-faults.js';
import { EXCLUSIVE_FAULTS } from './exclusive-faults.js';
import type { Fault } from './fault.js';
import type { FaultName } from './names.js';
import { STORE_FAULTS } from './store-faults.js';

/** How each fault is injected. */
export const FAULTS: Readonly<Record<FaultName, Fault>> = {
  ...COORDINATOR_FAULTS,
  ...STORE_FAULTS,
  ...AGENT_FAULTS,
  ...EXCLUSIVE_FAULTS,
};
