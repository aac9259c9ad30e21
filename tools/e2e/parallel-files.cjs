/**
 * Test files that can run beside another file: their clusters have their own ports and directories,
 * and they do not measure CPU, memory or short times. Every other file runs alone, so a new file is
 * serial until it is listed here.
 */
module.exports = [
  'adoption',
  'backup',
  'cloudlessctl',
  'cloudlessctl-rollout',
  'component-crash',
  'coordinator-kill-durability',
  'daemon-cleanup',
  'dev-cluster',
  'drain',
  'exclusive',
  'exec-large-results',
  'invalid-input',
  'logs',
  'observability',
  'packages',
  'placement',
  'port-forward',
  'probes',
  'public-api',
  'readme-commands',
  'restored-state',
  'rollout-coordinator-kill',
  'start-up',
  'store-growth',
  'stored-plans',
].map((name) => `<rootDir>/src/${name}.e2e.ts`);
