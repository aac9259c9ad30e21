/**
 * Test files that can run beside another file: their clusters have their own ports and directories,
 * they do not measure CPU, memory or short times, and no test in them depends on a lease or on the
 * moment of a kill. Every other file runs alone, so a new file is serial until this list names it.
 */
module.exports = [
  'backup',
  'clients',
  'cloudlessctl',
  'cloudlessctl-rollout',
  'drain',
  'exec-large-results',
  'invalid-input',
  'join-tokens',
  'logs',
  'observability',
  'packages',
  'placement',
  'port-forward',
  'probes',
  'public-api',
  'readme-commands',
  'replica-costs',
  'restored-state',
  'rolling-update',
  'rollout-blue-green',
  'rollout-canary',
  'secret-scan',
  'start-up',
  'store-directory',
  'store-growth',
  'stored-plans',
].map((name) => `<rootDir>/src/${name}.e2e.ts`);
