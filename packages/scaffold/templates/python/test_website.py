import unittest

from website import reconcile

HELLO = {"metadata": {"name": "hello", "namespace": "default"}, "spec": {"html": "hello", "replicas": 2}}


class Website(unittest.TestCase):
    def test_starts_as_not_ready(self):
        outcome = reconcile({"object": HELLO, "owned": {}})
        self.assertEqual(outcome["status"], {"ready": 0})
        self.assertEqual(outcome["conditions"][0]["status"], "False")

    def test_is_ready_when_all_replicas_are(self):
        deployment = {"metadata": {"name": "hello"}, "status": {"readyReplicas": 2}}
        outcome = reconcile({"object": HELLO, "owned": {"Deployment.v1.apps": [deployment]}})
        self.assertEqual(outcome["conditions"][0]["status"], "True")

    def test_serves_the_page_that_the_spec_has(self):
        config_map = reconcile({"object": HELLO, "owned": {}})["apply"][0]
        self.assertEqual(config_map["data"], {"index.html": "hello"})


if __name__ == "__main__":
    unittest.main()
