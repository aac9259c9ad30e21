/**
 * Bundles of the commands that only the agent itself calls, by command; each beside this module.
 * Each process reads the code of its own command only: a network proxy that is started again must
 * serve within a fraction of a second, and the agent has four times its code.
 */
const OWN_BUNDLES: Readonly<Record<string, string>> = {
  supervisor: 'supervisor-command',
  'network-proxy': 'network-proxy-command',
};

const name = OWN_BUNDLES[process.argv[2] ?? ''] ?? 'agent-command';
const extension = import.meta.url.endsWith('.ts') ? 'ts' : 'mjs';
await import(new URL(`./${name}.${extension}`, import.meta.url).href);
