/** Command that runs this program, also from source. */
const program = [
  process.execPath,
  ...process.execArgv.filter((argument) => !argument.startsWith('--inspect')),
  process.argv[1] ?? '',
];

/** Command that runs this program as supervisor of the process runtime. */
export const supervisorCommand: readonly string[] = [...program, 'supervisor'];

/** Command that runs this program as network proxy. */
export const proxyCommand: readonly string[] = [...program, 'network-proxy'];
