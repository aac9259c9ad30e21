/**
 * Examples of each command, without the program name. A subcommand of `workload` that also exists at
 * the top level has the examples of the short form. A spec checks the options of every example.
 */
const EXAMPLES: Readonly<Record<string, readonly string[]>> = {
  'workload create': [
    'workload create web --image nginx:alpine --port http=80 --wait',
    'workload create web --image nginx:alpine --step 25%,manual',
    'workload create worker --env-file worker.env -- node worker.js',
  ],
  'workload update': [
    'workload update web --image nginx:1.29 --wait',
    'workload update web --env LEVEL=debug --env OLD- --no-read-only',
  ],
  'workload list': ['workload list', 'workload list -A -l app=shop -o wide'],
  'workload get': ['workload get web', 'workload get web -o yaml'],
  'workload top': ['workload top', 'workload top web --node web1'],
  'rollout status': [
    'rollout status web',
    'rollout status -l app=shop',
    'rollout status web --watch=false -o json',
  ],
  'rollout plan': ['rollout plan web', 'rollout plan prod/web -o json'],
  'rollout pause': ['rollout pause web', 'rollout pause -l app=shop'],
  'rollout resume': ['rollout resume web', 'rollout resume web --wait'],
  'rollout promote': ['rollout promote web', 'rollout promote web --version 4 --wait'],
  'rollout undo': ['rollout undo web --wait', 'rollout undo web --to-version 3 --plan'],
  'rollout restart': ['rollout restart web --wait', 'rollout restart -l app=shop'],
  'rollout history': ['rollout history web', 'rollout history web --version 3 > web.yaml'],
  'node list': ['node list', 'node list -l disk=ssd -o wide'],
  'node get': ['node get web1', 'node get web1 web2 -o json'],
  'node describe': ['node describe web1', 'node describe web1 -o yaml'],
  'node cordon': ['node cordon web1', 'node cordon web1 web2'],
  'node uncordon': ['node uncordon web1', 'node uncordon web1 web2'],
  'node drain': [
    'node drain web1 --wait',
    'node drain web1 --deadline 5m --force --wait',
    'node drain web1 web2 --plan',
  ],
  'node label': ['node label web1 disk=ssd rack=7', 'node label web1 rack-'],
  'node taint': ['node taint web1 gpu=true:NO_SCHEDULE', 'node taint web1 gpu:NO_SCHEDULE-'],
  'node confirm-lost': ['node confirm-lost web1', 'node confirm-lost web1 -o json'],
  'node remove': ['node remove web1', 'node remove web1 --force'],
  'node top': ['node top', 'node top web1 web2'],
  'node join-command': [
    'node join-command --uses 3 --lifetime 1h',
    'node join-command --join-token-file join-token',
  ],
  'node ban': ['node ban web1 --reason stolen', 'node ban web1 --removed'],
  'node unban': ['node unban web1', 'node unban web1 web2'],
  'node bans': ['node bans', 'node bans -o json'],
  'user create': ['user create ada', 'user create ada grace'],
  'user list': ['user list', 'user list ada -o json'],
  'user delete': ['user delete ada', 'user delete ada grace'],
  'user grant': ['user grant ada operator -n shop', 'user grant ada viewer --cluster'],
  'user revoke': ['user revoke ada operator -n shop', 'user revoke ada viewer --cluster'],
  'user token create': [
    'user token create ada --lifetime 30d --output-file ada.token',
    'user token create --description backup-job',
  ],
  'user token list': ['user token list', 'user token list ada -o wide'],
  'user token revoke': [
    'user token revoke k3v9x0aq71bd',
    'user token revoke k3v9x0aq71bd --user ada',
  ],
  'token create': [
    'token create --uses 3 --lifetime 1h',
    'token create --node-pattern edge-* --output-file join-token',
  ],
  'token list': ['token list', 'token list -o wide'],
  'token revoke': ['token revoke k3v9x0aq71bd', 'token revoke k3v9x0aq71bd 0m4c8e2fz6ty'],
  'plan list': ['plan list', 'plan list -o json'],
  'plan show': ['plan show 6f1d0c9be2a45718', 'plan show 6f1d0c9be2a45718 -o yaml'],
  'plan execute': ['plan execute 6f1d0c9be2a45718', 'plan execute 6f1d0c9be2a45718 --wait'],
  'top node': ['top node', 'top node web1 -o json'],
  'top workload': ['top workload', 'top workload -A'],
  'top replica': ['top replica', 'top replica web --node web1'],
  'context list': ['context list', 'context list -o json'],
  'context show': ['context show', 'context show --context prod'],
  'context use': ['context use prod', 'context use dev'],
  'context set': [
    'context set prod --server https://cluster.example:8443 -n shop',
    'context set prod --namespace team',
  ],
  'admin backup': ['admin backup today.backup', 'admin backup today.backup --force'],
  'admin verify': ['admin verify today.backup', 'admin verify today.backup -o json'],
  'admin restore': [
    'admin restore today.backup --data-dir /var/lib/cloudless',
    'admin restore today.backup --etcd-endpoints https://10.0.0.1:2379',
  ],
  'admin migrate': [
    'admin migrate old --to etcd --etcd-endpoints https://etcd:2379',
    'admin migrate new --to lmdb --etcd-endpoints https://etcd:2379',
  ],
  'admin accept-restored-state': ['admin accept-restored-state'],
  'admin step-down': ['admin step-down', 'admin step-down -o json'],
  'admin ca': ['admin ca', 'admin ca --pem > ca.crt'],
  'admin snapshot': ['admin snapshot today.snapshot', 'admin snapshot today.snapshot --force'],
  'admin rotate-ca': [
    'admin rotate-ca --wait',
    'admin rotate-ca --skip-wait --wait',
    'admin rotate-ca --again --wait',
  ],
  'admin install-unit': [
    'admin install-unit coordinator -- --host 0.0.0.0',
    'admin install-unit agent -- --coordinator https://c1:8080',
  ],
  apply: [
    'apply -f web.yaml --wait',
    'apply -f manifests/ --dry-run',
    'apply -f web.yaml --plan',
    'apply -f app/ --set shop --prune',
    'apply --plan-id 6f1d0c9be2a45718 --wait',
  ],
  get: [
    'get workloads',
    'get nodes --watch',
    'get workload web -o yaml',
    'get containers --node web1',
  ],
  describe: ['describe web', 'describe node web1'],
  events: ['events --limit 20', 'events --workload web --watch', 'events --why 7-1'],
  logs: ['logs web -f --tail 20', 'logs web --previous', 'logs web --since 10m --timestamps'],
  exec: ['exec web -- ls -l', 'exec -it web -- sh'],
  'port-forward': ['port-forward web 8080:http', 'port-forward web http 9090:9090'],
  scale: ['scale web 5 --wait', 'scale web api --replicas 5', 'scale web 0 --plan'],
  delete: ['delete web --wait', 'delete web api --ignore-not-found'],
  explain: ['explain web', 'explain prod/web -o json'],
  rebalance: ['rebalance --plan', 'rebalance --max-moves 4 --dry-run', 'rebalance --wait'],
  simulate: [
    'simulate --lose-zone a',
    'simulate --drain-node web1 --add-nodes 3=node.yaml',
    'simulate --add-nodes 2=like:web1 --scale web=50',
    'simulate --apply web.yaml -o json',
    'simulate --snapshot today.snapshot --lose-zone a',
  ],
  login: [
    'login https://cluster.example:8443 --token-file ada.token',
    'login https://cluster.example:8443 --name prod',
  ],
  logout: ['logout', 'logout --context prod'],
  whoami: ['whoami', 'whoami -o json'],
  version: ['version', 'version --client -o json'],
  help: ['help', 'help node drain'],
};

/**
 * Returns the examples of a command.
 * @param path - Names from the top-level command on: `node drain`.
 */
export function findExamples(path: string): readonly string[] {
  return EXAMPLES[path] ?? EXAMPLES[path.replace(/^workload /, '')] ?? [];
}
