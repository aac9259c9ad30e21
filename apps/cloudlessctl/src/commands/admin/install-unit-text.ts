/** The services that `admin install-unit` knows. */
export type UnitService = 'coordinator' | 'agent';

/** The program of a systemd unit, its flags and its directories. */
export interface UnitOptions {
  readonly service: UnitService;
  /** Absolute path of the program. */
  readonly program: string;
  /** Absolute path of the folder of `node`, first in the search path of the service. */
  readonly nodeFolder: string;
  /** Arguments of the program, except those that the unit sets itself. */
  readonly args: readonly string[];
  /** User of the agent, who can run processes only. Undefined: root. */
  readonly user: string | undefined;
  /** Directories that processes of workloads may write, besides their own. Absolute paths. */
  readonly writablePaths: readonly string[];
  /** Processors of the machine, 1 or more. Decides the threads of V8 in a coordinator. */
  readonly processors: number;
}

/** One `Name=value` of a unit. */
type Setting = readonly [name: string, value: string];
/** Settings below a comment that says why. */
type Section = readonly [comment: string, ...settings: readonly Setting[]];

/** The directory of a service below `/var/lib`; the unit sets `--data-dir` to this directory. */
export function stateDirectoryOf(service: UnitService): string {
  return `cloudless-${service}`;
}

/**
 * Returns the text of a hardened systemd unit. Pure.
 * @see systemd.exec(5), systemd.service(5), systemd.kill(5)
 */
export function formatUnit(options: UnitOptions): string {
  const { service } = options;
  const sections =
    service === 'coordinator' ? coordinatorSections(options) : agentSections(options);
  return [
    `# Written by: cloudlessctl admin install-unit ${service}`,
    '[Unit]',
    service === 'coordinator' ? 'Description=Cloudless coordinator' : 'Description=Cloudless agent',
    'Wants=network-online.target',
    `After=network-online.target${service === 'agent' ? ' containerd.service crio.service' : ' etcd.service'}`,
    '# A service that cannot start is tried again for as long as the machine runs.',
    'StartLimitIntervalSec=0',
    '',
    '[Service]',
    ...[...commonSections(options), ...sections].flatMap(([comment, ...settings]) => [
      `# ${comment}`,
      ...settings.map(([name, value]) => `${name}=${value}`),
    ]),
    '',
    '[Install]',
    'WantedBy=multi-user.target',
    '',
  ].join('\n');
}

/** Search path of the service after the folder of Node.js: the default of systemd. */
const SEARCH_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

function commonSections({ service, program, nodeFolder, args }: UnitOptions): readonly Section[] {
  const directory = stateDirectoryOf(service);
  const command = [
    program,
    ...(service === 'agent' ? ['run'] : []),
    ...['--data-dir', `/var/lib/${directory}`],
    ...(service === 'coordinator' ? toCredentialArguments(args) : args),
  ];
  return [
    [
      'The program is a script that starts node from the search path.',
      ['Type', 'exec'],
      ['Environment', quoteWord(`PATH=${nodeFolder}:${SEARCH_PATH}`)],
      ['ExecStart', command.map(quoteArgument).join(' ')],
    ],
    [
      'Started again after every end, except with exit code 2: the flags are wrong.',
      ['Restart', 'always'],
      ['RestartSec', '1s'],
      ['RestartPreventExitStatus', '2'],
    ],
    [
      'Data with keys and tokens: only the service reads it. No memory of it in core dumps.',
      ['StateDirectory', directory],
      ['StateDirectoryMode', '0700'],
      // workloads may raise the limit of an agent
      ['LimitCORE', service === 'coordinator' ? '0' : '0:infinity'],
    ],
    [
      'One of the last processes that the kernel kills when memory runs out.',
      ['OOMScoreAdjust', '-900'],
    ],
  ];
}

/** Flags of a coordinator whose files its user cannot read, with the names of the credentials. */
const CREDENTIALS: Readonly<Record<string, string>> = {
  '--etcd-ca': 'etcd-ca.crt',
  '--etcd-cert': 'etcd.crt',
  '--etcd-key': 'etcd.key',
  '--etcd-password-file': 'etcd-password',
};
/** Flags of files that systemd reads for the service. */
export const CREDENTIAL_FLAGS: readonly string[] = Object.keys(CREDENTIALS);
/** Directory in which the service finds its credentials, made by systemd. */
const CREDENTIALS_DIRECTORY = '/run/credentials/cloudless-coordinator.service';

/** Returns the arguments with the paths of credentials in place of those of their files. */
function toCredentialArguments(args: readonly string[]): readonly string[] {
  return args.map((word, index) => {
    const [flag = ''] = word.split('=', 1);
    const inline = CREDENTIALS[flag];
    if (inline !== undefined && word !== flag) return `${flag}=${CREDENTIALS_DIRECTORY}/${inline}`;
    const separate = CREDENTIALS[args[index - 1] ?? ''];
    return separate === undefined ? word : `${CREDENTIALS_DIRECTORY}/${separate}`;
  });
}

function credentialSections(args: readonly string[]): readonly Section[] {
  const settings = Object.entries(CREDENTIALS).flatMap(([flag, name]) => {
    const path = readFlag(args, flag);
    return path === undefined ? [] : [['LoadCredential', quoteWord(`${name}:${path}`)] as const];
  });
  return settings.length === 0
    ? []
    : [
        [
          'Files for etcd, which systemd reads at each start for the user of the service.',
          ...settings,
        ],
      ];
}

/** Ports below this one need CAP_NET_BIND_SERVICE. */
const FIRST_FREE_PORT = 1024;

/** Background threads of V8 by default in Node.js, for garbage collection and compilation. */
const DEFAULT_V8_THREADS = 4;

/**
 * Returns the flags of Node.js for a coordinator. The main thread takes part in the collection of
 * new objects, so V8 gets one thread less than there are processors, but at least one.
 */
function coordinatorNodeOptions(processors: number): string {
  const v8Threads = Math.max(1, processors - 1);
  return [
    '--max-semi-space-size=64',
    ...(v8Threads < DEFAULT_V8_THREADS ? [`--v8-pool-size=${v8Threads}`] : []),
  ].join(' ');
}

function coordinatorSections({ args, processors }: UnitOptions): readonly Section[] {
  const hasLowPort = ['--port', '--ops-port'].some((flag) => {
    const port = Number(readFlag(args, flag) ?? FIRST_FREE_PORT);
    return port > 0 && port < FIRST_FREE_PORT;
  });
  const capabilities = hasLowPort ? 'CAP_NET_BIND_SERVICE' : '';
  return [
    ...credentialSections(args),
    ['Connections of thousands of agents.', ['LimitNOFILE', '1048576']],
    [
      'Less garbage collection, for up to 150 MiB more memory; V8 threads that suit the processors.',
      ['Environment', quoteWord(`NODE_OPTIONS=${coordinatorNodeOptions(processors)}`)],
    ],
    [
      'The coordinator closes its store within 10 s; agents and workloads go on without it.',
      ['TimeoutStopSec', '30s'],
    ],
    [
      hasLowPort
        ? 'A user of its own, with no right but that to listen on a port below 1024.'
        : 'A user of its own, with no rights.',
      ['DynamicUser', 'yes'],
      ['User', 'cloudless-coordinator'],
      ['NoNewPrivileges', 'yes'],
      ['CapabilityBoundingSet', capabilities],
      ['AmbientCapabilities', capabilities],
      // in a user namespace, the capability would not be one of the machine
      ...(hasLowPort ? [] : [['PrivateUsers', 'yes'] as const]),
    ],
    [
      'Writes to its own directory only, sees no home, no device and no process of others.',
      ['UMask', '0077'],
      ['ProtectSystem', 'strict'],
      ['ProtectHome', 'yes'],
      ['PrivateTmp', 'yes'],
      ['PrivateDevices', 'yes'],
      ['ProtectProc', 'invisible'],
      ['ProtectControlGroups', 'yes'],
      ['ProtectKernelTunables', 'yes'],
      ['ProtectKernelModules', 'yes'],
      ['ProtectKernelLogs', 'yes'],
      ['ProtectClock', 'yes'],
      ['ProtectHostname', 'yes'],
    ],
    [
      'System calls of a network service. No MemoryDenyWriteExecute: Node.js compiles as it runs.',
      ['RestrictAddressFamilies', 'AF_INET AF_INET6 AF_UNIX AF_NETLINK'],
      ['RestrictNamespaces', 'yes'],
      ['RestrictRealtime', 'yes'],
      ['RestrictSUIDSGID', 'yes'],
      ['LockPersonality', 'yes'],
      ['RemoveIPC', 'yes'],
      ['KeyringMode', 'private'],
      ['SystemCallArchitectures', 'native'],
      ['SystemCallFilter', '@system-service'],
      ['SystemCallFilter', '~@privileged @resources'],
      ['SystemCallErrorNumber', 'EPERM'],
    ],
  ];
}

/** Rights that an agent needs for the processes of workloads, as root. */
const PROCESS_CAPABILITIES = [
  'CAP_CHOWN',
  'CAP_DAC_OVERRIDE',
  'CAP_DAC_READ_SEARCH',
  'CAP_FOWNER',
  'CAP_FSETID',
  'CAP_KILL',
  'CAP_NET_BIND_SERVICE',
  'CAP_SETGID',
  'CAP_SETUID',
  'CAP_SYS_PTRACE',
  'CAP_SYS_RESOURCE',
];
/**
 * Rights that containers need in addition: the agent mounts their volumes in memory. With the right to
 * enter a mount namespace (setns(2)), processes have a resolv.conf of their own.
 */
const CONTAINER_CAPABILITIES = ['CAP_SYS_ADMIN', 'CAP_SYS_CHROOT'];
/** Rights for the route of virtual addresses, which the network proxy adds, and for egress limits. */
const NETWORK_CAPABILITIES = ['CAP_NET_ADMIN'];

/** The directory `/run/cloudless`, which stays when the agent stops. */
const RUN_DIRECTORY: readonly Setting[] = [
  ['RuntimeDirectory', 'cloudless'],
  ['RuntimeDirectoryPreserve', 'yes'],
];

function agentSections({ args, user, writablePaths }: UnitOptions): readonly Section[] {
  const hasContainers = user === undefined && readFlag(args, '--runtime') !== 'process';
  const hasNetwork = readFlag(args, '--network') !== 'off';
  const capabilities =
    user === undefined
      ? [
          ...PROCESS_CAPABILITIES,
          ...(hasContainers ? CONTAINER_CAPABILITIES : []),
          ...(hasNetwork || hasContainers ? NETWORK_CAPABILITIES : []),
        ]
      : [];
  return [
    [
      'Only the agent is stopped. Its workloads go on, and the next agent adopts them.',
      ['KillMode', 'process'],
      ['TimeoutStopSec', '90s'],
    ],
    [
      'A group of its own for each workload. A workload that runs out of memory ends alone.',
      ['Delegate', 'yes'],
      ['OOMPolicy', 'continue'],
      ['TasksMax', 'infinity'],
      ['LimitNOFILE', '1048576'],
      ['LimitNPROC', 'infinity'],
    ],
    [
      user === undefined
        ? 'Root, with the rights that workloads need and no others.'
        : 'A user without rights: processes only, no containers.',
      ...(user === undefined ? [] : [['User', user] as const]),
      ['NoNewPrivileges', 'yes'],
      ['CapabilityBoundingSet', capabilities.join(' ')],
    ],
    hasContainers
      ? [
          'No ProtectSystem or PrivateTmp: the container runtime has to see what the agent mounts.',
          ['LockPersonality', 'yes'],
          ['RestrictRealtime', 'yes'],
          ['KeyringMode', 'private'],
        ]
      : [
          'Workloads write to their own directories and to /tmp, which outlives the agent.',
          ['ProtectSystem', 'strict'],
          ['ReadWritePaths', ['/tmp', '/var/tmp', ...writablePaths].map(quoteWord).join(' ')],
          // with the lock of the network proxy, which outlives the agent
          ...(user === undefined && hasNetwork ? RUN_DIRECTORY : []),
          ['ProtectHome', 'read-only'],
          ['ProtectKernelTunables', 'yes'],
          ['ProtectKernelModules', 'yes'],
          ['ProtectKernelLogs', 'yes'],
          ['ProtectClock', 'yes'],
          // the agent makes groups below its own
          ['ProtectControlGroups', 'no'],
          ['LockPersonality', 'yes'],
          ['RestrictRealtime', 'yes'],
          ['RestrictSUIDSGID', 'yes'],
          ['KeyringMode', 'private'],
        ],
  ];
}

/** Returns the last value of a flag, as `--flag value` or `--flag=value`. */
export function readFlag(args: readonly string[], flag: string): string | undefined {
  return args
    .flatMap((word, index) =>
      word === flag
        ? [args[index + 1]]
        : word.startsWith(`${flag}=`)
          ? [word.slice(flag.length + 1)]
          : [],
    )
    .at(-1);
}

/**
 * Quotes a word for a list of a unit, such as that of `ReadWritePaths`.
 * @see systemd.syntax(7) "Quoting", systemd.unit(5) "Specifiers"
 */
export function quoteWord(word: string): string {
  const escaped = word.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('%', '%%');
  return /^[\w@%+=:,./-]+$/.test(escaped) ? escaped : `"${escaped}"`;
}

/**
 * Quotes a word for a command line of a unit, where `$` stands before a variable.
 * @see systemd.service(5) "Command lines"
 */
export function quoteArgument(word: string): string {
  return quoteWord(word).replaceAll('$', '$$$$');
}
