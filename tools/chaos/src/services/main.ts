// A service under updates and faults, on real processes: see ../../README.md.
import { runProgram } from '../run-program.js';
import { FOREIGN_PROGRAMS } from './foreign-clients.js';
import { SERVICE_USAGE, parseServiceOptions } from './options.js';
import { PASSWORD_PROGRAMS } from './password-workloads.js';
import { runServices } from './run.js';

await runProgram({
  name: 'chaos:services',
  usage: SERVICE_USAGE,
  parse: parseServiceOptions,
  listPrograms: ({ runsClients, changesPasswords }) => [
    ...['etcd', 'nft', 'nc'],
    ...(runsClients ? FOREIGN_PROGRAMS : []),
    ...(changesPasswords ? PASSWORD_PROGRAMS : []),
  ],
  run: async (options, print, stopSignal) => {
    const violations = await runServices(options, print, stopSignal);
    print(`\n${violations.length} violations`);
    return { violations };
  },
});
